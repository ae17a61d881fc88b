PYTHON ?= python3
BIN := .venv/bin
# Processes that share the tests: as many as the smallest machine has cores.
WORKERS ?= 2
# Percent of a full attack, which takes an hour of processor time.
COUNT ?= 100

# pip unpacks for a minute without a word, so a second voice says how far it is; it ends with the shell that began it.
define install-with
( while sleep 15 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
	echo "installing: .venv holds $$(du -sh .venv | cut -f1) so far, of about 6 GB"; done ) & voice=$$!; \
$(BIN)/pip install --progress-bar off --constraint constraints.txt --editable '.[$(1)]'; \
status=$$?; kill $$voice; exit $$status
endef

.PHONY: install run test test-all test-browser chaos check index docs results wheel help clean

help:  ## Say what the targets do
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 12

install: .venv/installed  ## Make .venv with the package in it

run: .venv/installed  ## Watch CLARE learn the embedded stream beside three references
	$(BIN)/clare compare quickdraw --methods clare,finetune,linear,simplecil --out runs/quickdraw

test: .venv/tested  ## Run the tests but the slow ones, in six minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m "not browser and not slow"

test-all: .venv/tested  ## Run all tests; skipped ones are named with the reason
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test-browser: .venv/tested  ## Drive the pages of `clare serve` and `clare report` with Chromium
	$(BIN)/python -m pytest tests/browser -m browser

chaos: .venv/tested  ## Attack the program: kills, damage, odd bodies, crowds, full disks; COUNT=10 for a tenth of it
	OMP_NUM_THREADS=1 PYTHONPATH=scripts $(BIN)/python -m chaos --count $(COUNT)

check: .venv/tested  ## Format, lint, types, and the rules that the source keeps as text
	$(BIN)/ruff format --check src tests scripts benchmarks studies examples
	$(BIN)/ruff check src tests scripts benchmarks studies examples
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_imports.py tests/test_repository.py

index: .venv/installed  ## Write src/clare/index.json, which the listing commands read in place of the code
	$(BIN)/python scripts/write_index.py

docs: .venv/tested index  ## Build the docs site into site/, strictly
	$(BIN)/python scripts/write_reference.py
	$(BIN)/python scripts/draw_method.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: .venv/installed  ## Write docs/results.md, its plots and the README's summary from the study
	$(BIN)/python studies/vits14-112/write_results.py
	$(BIN)/python scripts/write_performance.py
	$(BIN)/python scripts/write_principle.py

wheel: .venv/installed  ## Build the wheel into dist/
	rm -rf build dist
	$(BIN)/pip wheel --no-deps --wheel-dir dist .
	rm -rf build

clean:  ## Remove .venv and the demonstration's run
	rm -rf .venv runs/quickdraw

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "clare needs Python 3.11 or newer, this is %s; run make PYTHON=/path/to/python3.11 …" % sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	@$(call install-with,serve)
	@touch $@

.venv/tested: .venv/installed
	@$(call install-with,dev)
	@touch $@
