# Every target sets up what it needs on a fresh machine: python3 (3.11+) with pip and venv is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
# Some virtual machines announce AMX instructions that they cannot run: products in bf16 then end the process.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: test test-all lint types perf-check pages results docs demo dist clean

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
	$(BIN)/python -m excessmtl.lab.speed check

pages: $(READY)  ## every document with numbers, from the committed files
	$(BIN)/python -m research.pages

results: $(READY)  ## which studies are of other code than today's; runs those, which takes many hours on a CPU
	$(BIN)/python -m research.due --run
	$(BIN)/python -m research.pages

$(VENV)/.docs: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(VENV)/.docs  ## the documentation site in site/; every warning is an error
	$(BIN)/mkdocs build --strict  # not --quiet: it hides warnings from --strict, which then passes

demo: $(READY)  ## two digits per picture, most labels of one of them wrong: what that costs, and who finds it
	$(BIN)/excessmtl sweep demo --out runs/demo
	$(BIN)/excessmtl diagnose --save $$(ls -dt runs/demo/*/excess-robust-losses-*/noise-0.6/seed-0 | head -1)
	$(BIN)/excessmtl report runs/demo -o runs/demo/report.html

dist:  ## wheel and sdist in dist/, checked; then the wheel in an empty environment runs two examples and a study
	rm -rf dist $(VENV)-dist
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/pip install --quiet build twine
	$(VENV)-dist/bin/python -m build
	$(VENV)-dist/bin/twine check --strict dist/*
	rm -rf $(VENV)-dist
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/pip install --quiet -c constraints.txt "$$(echo dist/*.whl)"
	$(VENV)-dist/bin/python -c "import excessmtl; print(excessmtl.list_methods())"
	$(VENV)-dist/bin/pip install --quiet -c constraints.txt "$$(echo dist/*.whl)[lab]"
	$(VENV)-dist/bin/python examples/plain_loop.py --quick
	$(VENV)-dist/bin/python examples/lightning_module.py --quick
	$(VENV)-dist/bin/excessmtl sweep demo --dry-run
	rm -rf $(VENV)-dist

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
