# Each target works alone on a machine with Python 3.11+, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check

.PHONY: demo test test-slow lint types docs locked bench bench-full clean

demo: $(VENV)/.installed
	$(BIN)/unseen demo

# Chromium and curl (for the slow tests also Slurm) come from apt; docs/testing.md says which promise is executed by which test.
test: $(VENV)/.installed-dev
	.ci/system-packages
	$(BIN)/pytest -q -n 2 --dist loadgroup -m "not slow"

test-slow: $(VENV)/.installed-dev
	.ci/system-packages slow
	$(BIN)/pytest -q -n 2 --dist loadgroup

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W -q docs docs/_build

# Against peers, on a machine that is quiet: benchmarks/README.md and bench.json. Full: with a million items.
bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/table.py

bench-full: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/table.py --full

# As CI installs: every file compared with its hash, built with what is pinned. CUDA=1: the index's build of torch.
locked:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(if $(CUDA),$(PIP) install --require-hashes -r requirements-lock-cuda.txt)
	$(PIP) install --require-hashes -r requirements-lock.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-docs

clean:
	rm -rf $(VENV)

# The constraints pin every tested version; a second call finds the marker and installs nothing.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[docs]'
	touch $@ $(VENV)/.installed
