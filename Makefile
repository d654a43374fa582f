# Every target sets up what it needs on a fresh machine: python3 (3.11+) with pip and venv is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

.PHONY: test test-all lint types perf-check demo clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[lab,dev]"
	@touch $@

test: $(READY)  ## the tests without the slow ones
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

test-all: $(READY)  ## every test
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

perf-check: $(READY)  ## ratios to plain PyTorch, a few seconds; fails where a step has become much slower
	$(BIN)/python perf/check.py

demo: $(READY)  ## two digits per picture, bad labels in one task, six methods; a table and report.html in a few minutes
	$(BIN)/excessmtl sweep studies/demo.yaml
	$(BIN)/excessmtl report runs/demo -o runs/demo/report.html

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
