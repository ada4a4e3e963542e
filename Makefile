# python3.11 may be a launcher without the interpreter behind it, so it is run, not looked up.
PYTHON ?= $(shell python3.11 -c 'print("python3.11")' 2>/dev/null || echo python3)
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv-demo
# Compiled files are kept, also where the environment says otherwise: tests start many processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: test test-slow attack release-check demo lint types contract unit gpu reproduce-quick docs clean

# Two at a time: types and documentation keep one core busy each, and the tests are the longest.
test: $(READY)
	+$(MAKE) --no-print-directory --jobs 2 lint types contract unit docs

# What only a release needs: the tests marked slow, and the packages as a user gets them.
release-check: test-slow
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist study
	$(BIN)/twine check --strict dist/*
	$(BIN)/python .ci/check_packages.py dist

test-slow: $(READY)
	$(BIN)/pytest -q -n 2 --dist worksteal -m slow

# Hostile calls, files, folders and signals: how many were tried, how many held.
attack: $(READY)
	$(BIN)/python -m attacks

demo: $(DEMO)/.ready
	$(DEMO)/bin/evalign demo

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

contract: $(READY)
	$(BIN)/lint-imports --no-logo

# worksteal: tests that share a fixture stay together, and no worker idles at the end.
unit: $(READY)
	$(BIN)/pytest -q -n 2 --dist worksteal

gpu: $(READY)
	CI= $(BIN)/pytest -q tests/device study/tests/device

# A small slice of every table of the papers, to see that it runs.
reproduce-quick: $(READY)
	$(BIN)/evalign-study run all --quick

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# --clear: a set-up that was interrupted or has other pins leaves nothing behind. The stamp lies
# inside, so that it goes with the environment, and is written last.
$(READY): pyproject.toml study/pyproject.toml constraints.txt
	@echo 'Setting up .venv (3.5 GB, three to ten minutes, once). pip tells how far it is:'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]' -e study
	touch $@

# Only what the demo needs, and torch without CUDA, which PyPI's has on Linux. Compiling all files
# would take a minute and 260 MB.
$(DEMO)/.ready: pyproject.toml constraints.txt
	@echo 'Setting up $(DEMO) (1.2 GB, about two minutes, once).'
	$(PYTHON) -m venv --clear $(DEMO)
	-$(DEMO)/bin/python -m pip install --quiet --no-compile --retries 0 --no-deps -c constraints.txt \
		--index-url https://download.pytorch.org/whl/cpu torch
	$(DEMO)/bin/python -m pip install --quiet --no-compile -c constraints.txt -e '.[cli]'
	touch $@

clean:
	rm -rf .venv $(DEMO) site dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
