"""The arrays of the real files, where they are present, and of made ones."""

import hashlib

import numpy as np
import pytest
from evalign_study.data import VOID, card, load, locate, names
from evalign_study.data.loading import content

from study.tests.data import made

# Cards that only relabel the same files are left out. The archive of caltech256 (1.2 GB) is not
# among the real files.
BASES = [name for name in names() if not card(name).positives and name != "caltech256"]
PIXELS = {"camvid", "membrane"}
IMAGES = {"cifar10", "fashion_mnist", *PIXELS}
# Rows that equal an earlier one in all columns but the label; creditcard's 1,081, winequality's 937
# and mammography's 3,334 (and one more with another label) are known.
EQUAL_ROWS = {
    "adult": 57,
    "mammography": 3335,
    "creditcard": 1081,
    "cocktailparty": 4800 - 320,  # a frame is a group
    "caltech256_clip": 1,
    "yeast": 31,
    "page_blocks": 79,
    "winequality_white": 937,
    "reuters_r8": 79,
    "annthyroid": 138,
    "cardiotocography": 4,
    "campaign": 12,
    "magic_gamma": 115,
    "scene": 9,
    "medical": 11,
    "enron": 141,
    "bibtex": 40,
}
SPLITS = {
    "adult": (32561, 16281),
    "cifar10": (50000, 10000),
    "fashion_mnist": (60000, 10000),
    "satimage": (4435, 2000),
    "reuters_r8": (5485, 2189),
    "camvid": (367, 233, 101),
}
FEATURES = {"adult": (107,), "creditcard": (29,), "cocktailparty": (22,)}
CIFAR_10 = {  # sha256 of the decoded images
    "train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    "test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
}


# The largest take seconds each. The bytes of all are checked by `datasets --check`, and made ones
# of these two are read below and in test_sources.py.
LARGE = ("cifar10", "camvid")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow) if x in LARGE else x for x in BASES]
)
def test_real_files_hold_what_the_card_says(real, name):
    rows, known = load(name), card(name)
    assert rows.card is known
    assert rows.X.shape == (known.rows, *FEATURES.get(name, known.shape))
    assert rows.y.dtype == (np.uint8 if name in PIXELS else np.int64)
    classes = rows.y[rows.y != VOID] if name in PIXELS else rows.y.ravel()
    counts = np.bincount(classes)
    if known.format == "multilabel":
        assert np.isin(rows.y, (0, 1)).all()
        counts = rows.y.sum(0)
    assert tuple(counts) == known.counts
    assert len(rows.classes) == len(known.counts)
    assert len(rows.y) - len(np.unique(rows.groups)) == EQUAL_ROWS.get(name, 0)
    if name in SPLITS:
        assert rows.split is not None
        parts = ("train", "test", "validation")[: len(SPLITS[name])]
        assert tuple((rows.split == part).sum() for part in parts) == SPLITS[name]
    else:
        assert rows.split is None
    if name == "reuters_r8":
        assert all(isinstance(text, str) and text for text in rows.X)
    else:
        assert rows.X.dtype == (np.uint8 if name in IMAGES else np.float32)
        assert np.isfinite(rows.X).all()
    if known.content:
        assert content(rows) == known.content
    if name == "cifar10":
        for part, value in CIFAR_10.items():
            assert hashlib.sha256(rows.X[rows.split == part].tobytes()).hexdigest() == value


def test_adult_as_codes_or_as_columns(give):
    give("adult", packed=made.adult()[1])
    paper, sound = load("adult", preparation="paper"), load("adult")
    # age, workclass, education, education-num, marital, occupation, relationship, race, sex,
    # gain, loss, hours, country: codes in the order of the alphabet, "?" first
    first = [39, 1, 0, 13, 1, 1, 1, 1, 1, 2174, 0, 40, 1]
    np.testing.assert_array_equal(paper.X[0], first)
    np.testing.assert_array_equal(paper.X[1], [50, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 13, 0])
    # five numbers, then a column for each of 2 + 1 + 2 + 2 + 2 + 2 + 2 + 2 words
    assert sound.X.shape == (3, 20)
    np.testing.assert_array_equal(sound.X[0, :5], [39, 13, 2174, 0, 40])
    np.testing.assert_array_equal(sound.X[:, 5:].sum(1), [8, 8, 8])
    assert set(sound.X[:, 5:].ravel()) == {0, 1}
    for rows in (paper, sound):
        np.testing.assert_array_equal(rows.y, [0, 1, 0])
        np.testing.assert_array_equal(rows.split, ["train", "train", "test"])
        # Rows two and three are one person, whatever the label says.
        np.testing.assert_array_equal(rows.groups, [0, 1, 1])


def test_creditcard_has_no_time_and_the_log_of_the_amount(give):
    give("creditcard", packed=made.creditcard()[1])
    (path,) = locate(card("creditcard")).files
    stored = np.load(path)["X"]
    rows = load("creditcard")
    np.testing.assert_array_equal(rows.X[:, :28], stored[:, 1:29])
    amounts = np.array([149.62, 0, 2.69, 25691.16])
    np.testing.assert_allclose(rows.X[:, 28], np.log(amounts + 0.001), rtol=1e-6)


def test_cocktailparty_calls_people_apart_positive(give):
    ids = [
        "stamp",
        "sample_no",
        "swapped",
        *(f"person{i}_{what}" for what in ("index", "id") for i in "12"),
    ]
    people = [f"{who}_{part}" for who in ("dyad1", "dyad2", "context1") for part in "xyc"]
    values = [range(9), range(9, 18), range(18, 27)]
    table = [
        [stamp, 0, 0, 0, 1, "ID_1", "ID_2", *numbers, same]
        for stamp, numbers, same in zip(["1.50", "1.50", "1.5"], values, [1, 0, 0], strict=True)
    ]
    packed = {"cocktailparty/cp_binary.csv.gz": made.packed_csv([*ids, *people, "target"], table)}
    give("cocktailparty", packed=packed)
    rows = load("cocktailparty")
    np.testing.assert_array_equal(rows.y, [0, 1, 1])
    assert rows.classes[1] == "apart"
    np.testing.assert_array_equal(rows.groups, [0, 0, 1])  # stamps are names, not numbers
    np.testing.assert_array_equal(rows.X[0], [0, 2, 3, 5, 6, 7, 8])


def test_frames_have_a_label_for_each_pair(give):
    stored = made.npz(
        xy=np.arange(12.0).reshape(2, 3, 2),
        theta=np.array([[0, np.pi / 2, np.pi], [0, 0, 0]]),
        group=np.array([[0, 0, 1], [0, 1, 0]], np.int8),
    )
    give("cocktailparty_frames", packed={"cocktailparty/cocktailparty_frames.npz": stored})
    rows = load("cocktailparty_frames")
    assert rows.X.shape == (2, 3, 4)
    np.testing.assert_allclose(rows.X[0, 1], [2, 3, 0, 1], atol=1e-7)
    np.testing.assert_array_equal(rows.y, [[1, 0, 0], [0, 1, 0]])  # pairs 01, 02, 12


def test_a_binary_variant_has_the_images_of_its_base(give):
    give("cifar10", packed=made.cifar10()[1])
    base, variant = load("cifar10"), load("cifar10_transportation")
    np.testing.assert_array_equal(variant.X, base.X)
    np.testing.assert_array_equal(base.y, [6, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    np.testing.assert_array_equal(variant.y, [0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    assert variant.classes == ("other", "transportation")
    assert variant.card.name == "cifar10_transportation"
    np.testing.assert_array_equal(load("cifar10_frog").y, base.y == 6)
    np.testing.assert_array_equal(load("cifar10_airplane").y, base.y == 0)


def test_classes_that_only_the_file_names(give):
    path = "caltech256_clip_subset/caltech256_clip_vitb32.npz"
    names = np.array(["001.ak47", "002.flag", "257.clutter"])
    X = np.ones((4, 512), np.float16)
    X[0] = 2
    give("caltech256_clip", packed={path: made.npz(X=X, y=[2, 0, 1, 0], class_names=names)})
    rows = load("caltech256_clip")
    assert rows.classes == ("001.ak47", "002.flag", "257.clutter")
    np.testing.assert_array_equal(rows.y, [2, 0, 1, 0])
    np.testing.assert_array_equal(rows.groups, [0, 1, 1, 1])


def test_photographs_have_one_size(give):
    give("caltech256", packed=made.caltech256()[1])
    rows = load("caltech256")
    assert rows.X.shape == (3, 64, 64, 3)
    assert rows.X.dtype == np.uint8
    assert rows.classes == ("001.ak47", "257.clutter")
    np.testing.assert_array_equal(rows.y, [0, 0, 1])
    # A JPEG keeps a colour to within a few steps of 255, and less so beside another one.
    one, two, (upper, lower) = rows.X[0], rows.X[1, :, 4:-4], np.split(rows.X[2], 2)
    expected = {(5, 120, 60): one, (20, 40, 200): two, 60: upper[:-2], 200: lower[2:]}
    for colour, found in expected.items():
        assert np.abs(found - np.array(colour)).max() <= 8


def test_pixels_of_the_originals_are_those_of_the_packed_files(give, monkeypatch):
    """One colour for each image: a JPEG keeps it, and halving does."""
    public, packed = made.camvid()
    give("camvid", packed=packed, shape=(4, 8, 3))
    local = load("camvid")
    monkeypatch.delenv("EVALIGN_DATA")
    give("camvid", public=public, shape=(4, 8, 3))
    fetched = load("camvid")
    np.testing.assert_array_equal(fetched.y, local.y)
    np.testing.assert_array_equal(fetched.split, ["train", "train", "validation", "test"])
    np.testing.assert_array_equal(fetched.split, local.split)
    assert np.abs(fetched.X.astype(int) - local.X).max() <= 2
    assert set(np.unique(local.y)) == {0, 3, VOID}
