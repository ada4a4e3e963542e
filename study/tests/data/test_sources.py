"""Files come from the local folder, the cache or the public source, and are checked."""

import numpy as np
import pandas as pd
import pytest
from evalign_study.data import DataError, UnverifiedWarning, card, damaged, load, locate
from evalign_study.data.loading import content

from study.tests.data import made

# Pooch leaves the connection of a failed download to the garbage collector.
LEFT_OPEN = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
pytestmark = pytest.mark.filterwarnings(LEFT_OPEN)


def files(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def refused(name):
    """Return the one-line error for a data set that cannot be loaded."""
    with pytest.raises(DataError) as raised:
        load(name)
    text = str(raised.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", made.BOTH)
def test_original_and_packed_files_give_the_same_arrays(name, give, server, monkeypatch):
    public, packed = made.BOTH[name]()
    give(name, public=public, packed=packed)
    local = load(name)
    assert server.asked == []
    monkeypatch.delenv("EVALIGN_DATA")
    fetched = load(name)
    assert len(server.asked) == len(public)
    assert fetched.X.dtype == local.X.dtype
    for part in ("X", "y", "groups", "split"):
        np.testing.assert_array_equal(getattr(fetched, part), getattr(local, part))
    again = load(name)
    assert len(server.asked) == len(public)  # from the cache
    np.testing.assert_array_equal(again.X, local.X)


@pytest.mark.parametrize("name", ["adult", "satimage"])
def test_the_published_bytes_give_the_same_arrays(real, name, give, monkeypatch):
    """Originals that are written from the packed files have the publisher's checksums.

    The checksum of sat.tst is not known.
    """
    local = load(name)
    (path,) = locate(card(name)).files
    table = pd.read_csv(path, keep_default_na=False)
    split = table.pop("split")
    parts = [table[split == part].to_numpy(object) for part in ("train", "test")]
    originals = getattr(made, f"{name}_originals")(*parts)
    give(name, public=originals, checksums=list(card(name).public.values()))
    monkeypatch.delenv("EVALIGN_DATA")
    fetched = load(name)
    np.testing.assert_array_equal(fetched.X, local.X)
    np.testing.assert_array_equal(fetched.y, local.y)
    np.testing.assert_array_equal(fetched.split, local.split)


def test_a_wrong_checksum_leaves_nothing_in_the_cache(give, cache):
    give("mammography", public=made.mammography()[0], checksums=["md5:" + 32 * "0"])
    text = refused("mammography")
    assert f"did not arrive whole: md5:{32 * '0'} is expected. Try again" in text
    assert files(cache) == []
    assert locate(card("mammography")).where == "absent"


@pytest.mark.parametrize("checksums", [None, [""]], ids=["verified", "unverified"])
def test_a_broken_connection_leaves_nothing_in_the_cache(checksums, give, server, cache):
    give("mammography", public=made.mammography()[0], checksums=checksums)
    server.missing = 10
    assert "cannot be fetched (ChunkedEncodingError)" in refused("mammography")
    assert files(cache) == []


def test_offline_and_absent_names_the_cure(give, server):
    give("adult", public=made.adult()[0])
    server.stop()
    text = refused("adult")
    assert text.startswith("adult is not in a folder named in EVALIGN_DATA (it is not set), and ")
    cure = "put adult/adult.csv.gz into a folder, and set EVALIGN_DATA to its path."
    assert text.endswith(f"Connect to the network, or {cure}")


def test_a_damaged_local_file_is_refused(give):
    (path, content), *_ = made.adult()[1].items()
    give("adult", packed={path: content})
    (file,) = locate(card("adult")).files
    file.write_bytes(content[:-1])
    assert damaged(locate(card("adult"))) == [file]
    text = refused("adult")
    assert text.startswith(f"{file} is damaged: it has another checksum than adult. sha256:")
    assert text.endswith(" is expected. Copy it again, or unset EVALIGN_DATA to fetch it.")
    give("adult", public={})
    assert refused("adult").endswith(" is expected. Copy it again.")


def test_a_damaged_file_in_the_cache_is_fetched_again(give, server):
    give("mammography", public=made.mammography()[0])
    whole = load("mammography").X
    (file,) = locate(card("mammography")).files
    file.write_bytes(b"1,2,3,4,5,6,'1'")
    assert damaged(locate(card("mammography"))) == [file]
    np.testing.assert_array_equal(load("mammography").X, whole)
    assert len(server.asked) == 2


def test_other_rows_of_an_unverified_source_are_told(give):
    give("mammography", public=made.mammography()[0], checksums=[""])
    with pytest.warns(UnverifiedWarning, match="not those that its card describes. They come from"):
        rows = load("mammography")
    give("mammography", public=made.mammography()[0], checksums=[""], content=content(rows))
    load("mammography")  # a warning would be an error


def test_an_unknown_checksum_is_recorded_and_expected_from_then_on(give, server, cache):
    """Trust at first use."""
    public = made.mammography()[0]
    ((name, original),) = public.items()
    give("mammography", public=public, checksums=[""])
    with pytest.warns(UnverifiedWarning, match=f"{made.sha256(original)} came, and is expected"):
        whole = load("mammography")
    give("mammography", public=public, checksums=[""], content=content(whole))
    (file,) = locate(card("mammography")).files
    record = file.with_name(f"{file.name}.sha256")
    assert record.read_text() == made.sha256(original) + "\n"

    file.write_bytes(original[:-1])
    assert damaged(locate(card("mammography"))) == [file]
    np.testing.assert_array_equal(load("mammography").X, whole.X)  # fetched again
    assert len(server.asked) == 2

    file.unlink()
    server.files[f"/mammography/{name}"] = original + b"0,0,0,0,0,0,'-1'\n"
    text = refused("mammography")
    assert f"{made.sha256(original)} is expected" in text
    assert text.endswith(f"delete {record}, which holds the old checksum.")
    assert files(cache) == [record.name]

    record.write_text("")
    assert refused("mammography").startswith(f"{record} is damaged: it holds no checksum.")


def test_a_label_that_the_card_does_not_know_is_refused(give):
    give("mammography", public=made.mammography()[0], classes=("-1", "2"))
    assert refused("mammography") == "mammography holds labels that its card does not know: 1."
