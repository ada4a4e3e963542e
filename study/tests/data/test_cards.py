"""What the cards say, without opening a file."""

import re
from pathlib import Path

import pytest
from evalign_study.data import card, names
from evalign_study.data.readers import READERS

ASKED = """
adult mammography creditcard cocktailparty cocktailparty_frames cifar10 cifar10_transportation
cifar10_frog cifar10_airplane cifar10_half fashion_mnist fashion_mnist_tshirt caltech256
caltech256_clip satimage yeast page_blocks winequality_white reuters_r8 annthyroid cardiotocography
campaign magic_gamma waveform camvid membrane emotions scene yeast_genes medical enron bibtex
"""
VERIFIED = {"adult", "creditcard", "cifar10", "fashion_mnist", "caltech256"}
CHECKSUM = r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}"
DOCS = Path(__file__).parents[3] / "docs" / "evidence" / "data.md"


def test_all_are_there():
    assert names() == ASKED.split()


@pytest.mark.parametrize("name", names())
def test_a_card_is_complete(name):
    known = card(name)
    assert known.name == name
    assert all([known.title, known.licence, known.citation, known.home, known.files])
    assert all(re.fullmatch(CHECKSUM, value) for value in known.files.values())
    assert len(known.classes) in {0, len(known.counts)}
    assert min(known.counts) > 0
    assert {known.format, known.public_format or known.format} <= set(READERS)
    assert known.verified == (known.base in VERIFIED or name in VERIFIED)
    for address, value in known.public.items():
        assert address.startswith("https://")
        assert re.fullmatch(f"{CHECKSUM}|", value)
    # Rows of a source without a checksum can still be told from others.
    unverified = bool(known.public) and not known.verified
    assert bool(re.fullmatch(r"[0-9a-f]{64}", known.content)) == unverified


def test_no_two_cards_share_a_content():
    contents = [card(name).content for name in names() if card(name).content]
    assert len(set(contents)) == len(contents)


@pytest.mark.parametrize("name", [name for name in names() if card(name).positives])
def test_the_positives_are_classes_of_another_card(name):
    known = card(name)
    base = card(known.base)
    counts = dict(zip(base.classes, base.counts, strict=True))
    positive = sum(counts[name] for name in known.positives)
    assert known.counts == (base.rows - positive, positive)
    assert known.files == base.files


def test_the_page_lists_every_set():
    text = DOCS.read_text(encoding="utf-8").partition("## Preparation")[0]
    lines = text.splitlines()
    for name in names():
        (line,) = (line for line in lines if line.startswith(f"| `{name}` |"))
        known = card(name)
        figures = [f"{known.rows:,}", str(len(known.counts)), f"{known.equitability:.3f}"]
        assert all(f"| {figure} |" in line for figure in [*figures, known.licence]), line
