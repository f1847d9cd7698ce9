# Every target works on a fresh clone: the first one to run makes .venv.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
STAMP := .venv/.treadle-ready
# Only the tests marked `reference` and the benchmarks need the binaries: 600 MB.
REFERENCE := .venv/.treadle-reference
DOCS := .venv/.treadle-docs
# Tests wait for servers a third of their time; with still more workers they wait for each other.
WORKERS ?= $(shell echo $$(($$(nproc 2>/dev/null || echo 2) + 2)))
# Compiled files are shared by some thousand processes that the tests start.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q -n $(WORKERS) --maxprocesses 4 \
	--dist worksteal

# A clone that was moved or copied, or whose interpreter is gone, needs a new .venv: the stamp
# holds the folder that it was made for.
READY := $(shell test -x $(BIN)/python && cat $(STAMP) 2>/dev/null)
ifneq ($(READY),$(CURDIR))
.PHONY: $(STAMP)
endif

WORDS := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs benchmarks scripts src tests

.PHONY: help setup setup-reference demo test test-ordinary-user test-reference record soak coverage \
	check generate hooks build docs docs-serve lock format bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' Makefile

$(STAMP): pyproject.toml requirements-dev.lock scripts/setup
	@scripts/setup

$(REFERENCE): $(STAMP) scripts/setup-reference
	@scripts/setup-reference

setup: $(STAMP) ## Make .venv with everything the other targets need

setup-reference: $(REFERENCE) ## Install the releases of the reference that tests compare with

demo: $(STAMP) ## Watch a server and a client talk
	@$(BIN)/treadle demo

test: $(STAMP) ## Run the tests; make test ARGS="tests/jsonrpc -k framing"
	@$(PYTEST) $(ARGS)

# One after the other: the kernel counts processes and files of a user together, and these tests
# use up the limits of one user.
test-ordinary-user: $(STAMP) ## As root: repeat what concerns the user as an ordinary user
	@$(PYTEST) -n 1 -m ordinary_user $(or $(ARGS),tests/attack tests/sandbox)

test-reference: $(REFERENCE) ## Run the reference binaries: their recordings, and clients and files
	@$(PYTEST) -m reference $(ARGS)

record: $(REFERENCE) ## Record the reference binaries into tests/golden; make record ARGS="-k steer"
	@$(PYTEST) -m reference --record $(ARGS)

soak: $(STAMP) ## Run the tests with all rounds of the long ones
	@TREADLE_SOAK=1 $(PYTEST) -m "not reference" $(ARGS)

coverage: $(STAMP) ## Run the tests with coverage.py, subprocesses too; html in build/coverage
	@WORKERS=$(WORKERS) scripts/coverage $(ARGS)

check: $(STAMP) ## Run all that a change must pass: format, lint, words, types, imports, tests
	@echo "== format" && $(BIN)/ruff format --check .
	@echo "== lint" && $(BIN)/ruff check .
	@echo "== words" && scripts/check-words $(WORDS)
	@echo "== types" && $(BIN)/mypy
	@echo "== imports" && $(BIN)/lint-imports --no-logo
	@echo "== tests" && $(MAKE) --no-print-directory test
	@echo "== tests as an ordinary user" && $(MAKE) --no-print-directory test-ordinary-user

generate: $(STAMP) ## Write the files that follow from the method table
	@$(BIN)/python -m scripts.generate

hooks: $(STAMP) ## Check each commit before it is made: format, lint, words, ends of files
	@$(BIN)/pre-commit install

build: $(STAMP) ## Build sdist and wheel into dist/, and run treadle from the wheel
	@scripts/build

$(DOCS): $(STAMP) requirements-docs.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --quiet --no-deps \
		--require-hashes --requirement requirements-docs.lock
	@touch $(DOCS)

docs: $(DOCS) ## Build the site into build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(DOCS) ## Show the site on http://127.0.0.1:8000 while you edit
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

lock: $(STAMP) ## Make the lock files again; make lock ARGS=--upgrade takes newer versions
	@scripts/lock $(ARGS)

format: $(STAMP) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(REFERENCE) ## Measure against the reference binary
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove everything that was made, .venv included
	@rm -rf .venv build dist .coverage .hypothesis
	@rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
