"""Run folders that somebody made: checksums are right, what they hold is not."""

import hashlib
import json
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from evalign.cli import predict
from evalign.cli import run as runs
from tests.forged import forge
from tests.ground.cli.commands import fit, refused, sign


@pytest.fixture
def run(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["../secret.txt", "{absolute}", "link.txt"])
def test_a_path_outside_of_the_run(run, tmp_path, data, name):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (run / "link.txt").symlink_to(secret)
    name = name.format(absolute=secret)
    files = json.loads((run / "run.json").read_text())["files"]
    sign(run, files=files | {name: hashlib.sha256(b"secret").hexdigest()})
    assert f"{name} is missing, or has changed" in refused("report", run)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["details.json", "run.json"])
def test_what_is_no_plain_file(run, data, tmp_path, name, kind):
    (run / name).unlink()
    os.mkfifo(run / name) if kind == "pipe" else (run / name).symlink_to("/dev/zero")
    for command in (["report", run], fit(data, run), ["evaluate", run, data]):
        refused(*command)


@pytest.mark.parametrize("value", [None, [], "text", 3, {"target": 3}])
@pytest.mark.parametrize("name", ["arguments", "files", "columns", "classes"])
def test_another_shape_of_run_json(run, name, value):
    sign(run, **{name: value})
    refused("report", run)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"[" * 10**5])
def test_other_details(run, content):
    (run / "details.json").write_bytes(content)
    sign(run)
    assert "details.json" in refused("report", run)


def test_a_run_that_holds_a_network_where_torch_is_missing(run, data, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("evalign.training")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    forge(run / "model", tensors_safetensors=b"")
    sign(run)
    said = refused("predict", run, data, "--out", tmp_path / "x.csv")
    assert f"{run}/model holds a network, which needs PyTorch: pip install 'evalign[torch]'" in said
    assert not (tmp_path / "x.csv").exists()


def test_other_columns_or_classes_than_the_model_has(run, data, tmp_path):
    predict = ["predict", run, data, "--out", tmp_path / "x.csv"]
    columns = json.loads((run / "run.json").read_text())["columns"]
    sign(run, columns=columns | {"kinds": {"age": "number"}})
    assert "its classes or columns are not those of run.json" in refused(*predict)
    sign(run, columns=columns, classes=["high", "low"], rows_per_class=[1, 1])
    assert "its classes or columns are not those of run.json" in refused(*predict)


def test_predictions_that_are_larger_in_memory(run, monkeypatch):
    """Equal values take no room in a Parquet file."""
    rows = pa.table({"label": ["low"] * 10**5, "model_prediction": ["low"] * 10**5})
    parquet.write_table(rows, run / runs.PREDICTIONS)
    sign(run)
    monkeypatch.setattr(predict, "LARGEST", 10**6)
    assert (run / runs.PREDICTIONS).stat().st_size < 10**5
    assert "bytes, more than 1,000,000." in refused("report", run)
