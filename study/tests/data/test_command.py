"""`evalign-study datasets`."""

import json

from evalign_study.data import card, load, locate, names

from study.tests.commands import done, invoke
from study.tests.data import made


def test_lists_every_set_within_a_terminal():
    result = done("datasets")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == names()
    assert max(map(len, lines)) <= 80
    assert (
        "adult                   48,842        14       2 23.93% 0.794 absent verified"
        in result.out
    )
    assert result.err == ""


def test_json_holds_the_card_and_where_it_was_found(give, monkeypatch):
    give("yeast", packed=made.yeast()[1])
    give("mammography", public=made.mammography()[0])
    load("mammography")
    found = json.loads(done("datasets", "--json").out)["datasets"]
    assert list(found) == names()
    places = {name: row["found"] for name, row in found.items() if row["found"] != "absent"}
    assert places == {"yeast": "local", "mammography": "cache"}
    adult = found["adult"]
    assert (adult["rows"], adult["shape"], adult["classes"]) == (48842, [14], 2)
    assert (adult["licence"], adult["citation"]) == (card("adult").licence, card("adult").citation)
    assert adult["public"] == card("adult").public
    assert adult["source"] == "verified"
    assert found["cocktailparty"]["source"] == "none"
    assert "damaged" not in adult


def test_check_finds_damage(give):
    give("yeast", packed=made.yeast()[1])
    assert (
        json.loads(done("datasets", "--check", "--json").out)["datasets"]["yeast"]["damaged"] == []
    )
    (file,) = locate(card("yeast")).files
    file.write_bytes(b"no table")
    assert invoke("datasets").code == 0
    result = invoke("datasets", "--check")
    assert result.code == 2
    (line,) = (line for line in result.out.splitlines() if line.startswith("yeast "))
    assert "damaged" in line
    assert result.err == f"evalign-study: Damaged: {file}. Copy or download again.\n"


def test_check_of_the_real_files(real):
    rows = json.loads(done("datasets", "--check", "--json").out)["datasets"]
    assert {name for name, row in rows.items() if row["found"] != "local"} <= {"caltech256"}
    assert all(row["damaged"] == [] for row in rows.values())
