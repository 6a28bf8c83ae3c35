# Everything is installed into .venv of this folder; a fresh machine needs Python 3.11+, git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test simulate simulate-exhaustive drill corpus compatibility check audit minio bench fuzz clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    kill a worker in the middle of an answer and see the next one carry on"
	@echo "make test    run the tests"
	@echo "make simulate SEEDS=1000   as many simulated worlds, each judged (ARGS=\"--jobs 4 --from 5000\")"
	@echo "make simulate-exhaustive   every schedule of small worlds, far beyond what the tests do"
	@echo "make drill   kill and stop real processes over real stores (ARGS=\"--kills 300 --store file\")"
	@echo "make corpus  rebuild 10,000 sessions, killed and beside workers (ARGS=\"--store s3 --sessions 1000\")"
	@echo "make compatibility   what the engine does with each S3 server that can be had here (ARGS=\"ceph seaweed\")"
	@echo "make check   linter, formatter, types, import contracts"
	@echo "make audit   known weaknesses of what is installed (needs an advisory database: the network)"
	@echo "make minio   a local MinIO to develop against"
	@echo "make bench   run the benchmarks (ARGS=peers: beside others, ARGS=load: much of everything; reports)"
	@echo "make fuzz    break what is read from outside, led by coverage (MINUTES=1 for each TARGET=all)"
	@echo "make clean   remove what the others made"

# One stamp for each set of dependencies, so that set-up runs once, and again when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 …" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.s3: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[s3]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.fuzz: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[fuzz]'
	@touch $@

$(VENV)/.audit: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[audit]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@

demo: $(VENV)/.core
	@$(BIN)/snapshotter demo $(ARGS)

test: $(VENV)/.test
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	  echo "node is not here: the tests against the real packages are not run"; \
	elif ! scripts/oracles.sh >/dev/null; then \
	  echo "the AI SDK's client could not be installed: the tests against it are not run"; fi
	$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

SEEDS ?= 1000
simulate: $(VENV)/.test
	@$(BIN)/python tests/simulation/run.py --seeds $(SEEDS) $(ARGS)

simulate-exhaustive: $(VENV)/.test
	@$(BIN)/python tests/simulation/exhaustive.py --full $(ARGS)

drill: $(VENV)/.test
	@$(BIN)/python tests/drills/drill.py $(ARGS)

corpus: $(VENV)/.test
	@$(BIN)/python scripts/corpus_check.py $(ARGS)

# Servers are installed below ~/.cache/snapshotter-stores; Ceph's packages are the system's. See docs/stores.md.
compatibility: $(VENV)/.test
	@$(BIN)/python scripts/compatibility.py $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# 1: some are known; 3: nobody could be asked.
audit: $(VENV)/.audit
	$(BIN)/python scripts/audit.py

# What is missing is told before anything is installed, and then only what makes the bucket is.
minio:
	@PYTHON=$(BIN)/python scripts/minio.sh check
	@$(MAKE) --no-print-directory --silent $(VENV)/.s3
	@PYTHON=$(BIN)/python scripts/minio.sh $(ARGS)

bench: $(VENV)/.test
	@$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(VENV)/.fuzz
	$(BIN)/python scripts/fuzz.py $(or $(TARGET),all) --minutes $(or $(MINUTES),1)

clean:
	rm -rf $(VENV) demo-data .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
