# The list of tasks. Every target sets up what it needs: only python3.11 (or newer) and make are assumed.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.installed-docs

# Three workers and every program that tests start load the same modules: compiled once, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-quick test-slow test-engines lint types contracts format docs wheel bench research fuzz clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## a virtual environment with gpate, gpate-research and their tools

# torch first and by its exact version: a looser request would bring the CUDA packages with it.
$(STAMP): pyproject.toml research/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -e research
	touch $@

# One thread: networks this small gain little from a second, and on a busy machine two threads wait for each other.
demo: $(STAMP) ## fits digits, samples, draws real against synthetic, prints the privacy statement; a minute
	OMP_NUM_THREADS=1 $(BIN)/python examples/demo.py

test: $(STAMP) ## lint, types, import contracts and all tests but the slow ones: ten minutes of CPU time, six on two cores
	@$(MAKE) --no-print-directory -j 2 test-quick lint

# By work stealing each worker has tests that follow each other, and makes what a file's tests share once.
test-quick: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not engines"

test-slow: $(DOCS) ## the tests that take minutes each
	$(BIN)/python -m pytest -m slow

test-engines: $(STAMP) ## PostgreSQL and Spark, each with a server of its own: a few minutes; says what it needs and is missing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[duckdb,postgres,spark]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m engines -rs tests/engines

fuzz: $(STAMP) ## hostile input, 100,000 cases of each kind: an hour on one core; CASES=1000 for a short one
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz all --cases $(or $(CASES),100000)

lint: $(STAMP) contracts types ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_words.py

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the files as ruff likes them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

docs: $(DOCS) ## the documentation site, in build/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

# The time stamps of all files in it are the commit's: anyone who builds the same commit gets the same bytes.
wheel: $(STAMP) ## the source distribution and, made from it, the wheel, in dist/; the same bytes for the same commit
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir dist .

bench: $(STAMP) ## the speed tables, on the machine at hand; JSON in benchmarks/results/
	$(BIN)/python -m benchmarks.gate
	$(BIN)/python -m benchmarks.teachers
	$(BIN)/python -m benchmarks.encoding

research: $(STAMP) ## the paper's tables and what of them was run; `gpate reproduce run TABLE` runs one (hours, on a GPU)
	$(BIN)/gpate reproduce list

clean: ## remove what was built
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist demo
