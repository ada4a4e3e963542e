# python3.11 may be a launcher without the interpreter behind it, so it is run, not looked up.
PYTHON ?= $(shell python3.11 -c 'print("python3.11")' 2>/dev/null || echo python3)
BIN := .venv/bin
READY := .venv/.ready
# The ground floor is tested where torch is not installed, as most people will use it.
GROUND := .venv-ground
DEMO := .venv-demo
LOSS := .venv-demo-loss
# Compiled files are kept, also where the environment says otherwise: tests start many processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: test test-slow attack release-check versions demo demo-loss lint types contract ground unit gpu \
	reproduce-quick docs clean

# Types and documentation keep one core busy each, and the tests both.
test: $(READY) $(GROUND)/.ready
	+$(MAKE) --no-print-directory --jobs 2 lint types contract docs
	+$(MAKE) --no-print-directory ground unit

# What only a release needs: the tests marked slow, and the packages as a user gets them.
release-check: test-slow
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist study
	$(BIN)/twine check --strict dist/*
	$(BIN)/python .ci/check_packages.py dist

test-slow: $(READY) $(GROUND)/.ready
	$(GROUND)/bin/pytest -q -n 2 --dist worksteal -m slow tests/ground
	$(BIN)/pytest -q -n 2 --dist worksteal -m slow --ignore tests/ground

# The oldest and the newest versions that the metadata allow, each in an environment of its own.
# TORCH="2.11.0 2.13.0" names those of torch.
versions:
	$(PYTHON) .ci/versions.py $(addprefix --torch ,$(TORCH))

# Hostile calls, files, folders and signals: how many were tried, how many held.
attack: $(READY)
	$(BIN)/python -m attacks

demo: $(DEMO)/.ready
	$(DEMO)/bin/evalign demo

demo-loss: $(LOSS)/.ready
	$(LOSS)/bin/python examples/loss_on_digits.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

contract: $(READY)
	$(BIN)/lint-imports --no-logo

# worksteal: tests that share a fixture stay together, and no worker idles at the end.
ground: $(GROUND)/.ready
	$(GROUND)/bin/pytest -q -n 2 --dist worksteal tests/ground

unit: $(READY)
	$(BIN)/pytest -q -n 2 --dist worksteal --ignore tests/ground

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

$(GROUND)/.ready: pyproject.toml constraints.txt
	@echo 'Setting up $(GROUND) (1 GB, about a minute, once).'
	$(PYTHON) -m venv --clear $(GROUND)
	$(GROUND)/bin/python -m pip install --quiet -c constraints.txt -e '.[dev-ground]'
	touch $@

# Compiling all files would take longer than the demo.
$(DEMO)/.ready: pyproject.toml constraints.txt
	@echo 'Setting up $(DEMO) (460 MB, half a minute, once).'
	$(PYTHON) -m venv --clear $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --no-compile -c constraints.txt -e '.[cli]'
	touch $@

# torch without CUDA, which PyPI's has on Linux.
$(LOSS)/.ready: pyproject.toml constraints.txt
	@echo 'Setting up $(LOSS) (1.2 GB, about two minutes, once).'
	$(PYTHON) -m venv --clear $(LOSS)
	-$(LOSS)/bin/python -m pip install --quiet --no-compile --retries 0 --no-deps -c constraints.txt \
		--index-url https://download.pytorch.org/whl/cpu torch
	$(LOSS)/bin/python -m pip install --quiet --no-compile -c constraints.txt -e '.[cli,torch]'
	touch $@

clean:
	rm -rf .venv $(GROUND) $(DEMO) $(LOSS) .venv-versions site dist build .pytest_cache .ruff_cache \
		.hypothesis .import_linter_cache
