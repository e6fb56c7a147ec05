# Everything runs in .venv, which the targets fill as they need it; no other set-up is needed.
PYTHON ?= python3
# TORCH=1 also installs torch and runs the tests that need it.
TORCH ?=
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet

.PHONY: install demo test lint format bench chaos mutate build public-data docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: .venv/dev $(if $(TORCH),.venv/torch) ## create .venv with Gavel and all development tools

# Both packages from the one tree. An earlier version is removed first: it may own the command that another brings now.
.venv/gavel: pyproject.toml packages/client/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip uninstall --quiet --quiet --yes gavel-scheduler gavel-client
	$(INSTALL) --editable packages/client --editable .
	touch $@

.venv/dev: .venv/gavel
	$(INSTALL) --editable packages/client --editable '.[dev]'
	touch $@

.venv/docs: .venv/gavel
	$(INSTALL) --editable packages/client --editable '.[docs]'
	touch $@

.venv/torch: .venv/dev
	$(INSTALL) --editable packages/client --editable '.[torch]'
	touch $@

demo: .venv/gavel ## run the whole live system here, on emulated accelerators
	$(BIN)/gavel demo

test: lint ## lint, types and all tests; TORCH=1 for those that need torch
	$(BIN)/python -m pytest -n auto

lint: install ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## the table of docs/performance.md, measured on this machine
	$(BIN)/python tools/bench_table.py

chaos: install ## kill 500 real processes and see that nothing is lost; OPTIONS="--kills 50 --seed 3"
	$(BIN)/python tools/chaos.py $(OPTIONS)

mutate: install ## change decisive lines one by one and see that tests notice; OPTIONS="--only fence --jobs 2"
	$(BIN)/python tools/mutate.py $(OPTIONS)

build: install ## both packages, as wheels and source distributions, in dist/
	rm -rf dist
	cd packages/client && ../../$(BIN)/python -m hatchling build -d ../../dist
	$(BIN)/python -m hatchling build -d dist

public-data: install ## compare with the public artefact's files and published logs in DATA=DIRECTORY
	@test -d "$(DATA)" || { echo "say where the public files are: make public-data DATA=DIRECTORY"; exit 2; }
	GAVEL_PUBLIC_DATA="$(DATA)" $(BIN)/python -m pytest -n auto $(filter-out %/place.py,$(wildcard tests/public/*.py))

docs: .venv/docs ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

clean: ## remove .venv, packages, the site and caches
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
