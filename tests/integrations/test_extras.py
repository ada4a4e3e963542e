"""An integration without its engine says what to install."""

import importlib
import sys

import pytest

from evalign.core.text import installing


@pytest.mark.parametrize(
    ("name", "engine"), [("lightning", "lightning"), ("huggingface", "transformers")]
)
def test_a_missing_engine_is_one_line_with_the_cure(name, engine, monkeypatch):
    module = f"evalign.integrations.{name}"
    for loaded in [engine, *sys.modules]:
        if loaded.split(".")[0] == engine:
            monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError) as told:
        importlib.import_module(module)
    assert str(told.value) == f"{module} needs {engine}. {installing(f'.[{name}]')}"
