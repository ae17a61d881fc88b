PYTHON ?= python3
BIN := .venv/bin
# Processes that share the tests: as many as the smallest machine has cores.
WORKERS ?= 2

.PHONY: install run test test-browser check docs results help clean

help:  ## Say what the targets do
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 12

install: .venv/installed  ## Make .venv with the package in it

run: .venv/installed  ## Watch CLARE learn the embedded stream beside three references
	$(BIN)/clare compare quickdraw --methods clare,finetune,linear,simplecil --out runs/quickdraw

test: .venv/tested  ## Run all tests; skipped ones are named with the reason
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test-browser: .venv/tested  ## Drive the pages of `clare serve` and `clare report` with Chromium
	$(BIN)/python -m pytest tests/browser -m browser

check: .venv/tested  ## Format, lint and types
	$(BIN)/ruff format --check src tests scripts benchmarks
	$(BIN)/ruff check src tests scripts benchmarks
	$(BIN)/mypy

docs: .venv/tested  ## Build the docs site into site/, strictly
	$(BIN)/python scripts/write_reference.py
	$(BIN)/python scripts/draw_method.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: .venv/installed  ## Write docs/results.md, its plots and the README's summary from results/
	$(BIN)/python scripts/write_results.py
	$(BIN)/python scripts/write_performance.py

clean:  ## Remove .venv and the demonstration's run
	rm -rf .venv runs/quickdraw

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "clare needs Python 3.11 or newer, this is %s; run make PYTHON=/path/to/python3.11 …" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[serve]'
	@touch $@

.venv/tested: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
