# Everything runs in .venv, which the targets fill as they need it; no other set-up is needed.
PYTHON ?= python3
# TORCH=1 also installs torch and the frameworks beside it, and runs the tests that need them.
TORCH ?=
# Test processes: one more than there are cores, because many tests wait for real processes.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
# Exact versions for development; LOCK= takes the newest that pyproject.toml admits.
LOCK ?= --constraint requirements/dev.lock --constraint requirements/torch.lock
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --editable packages/client --editable
PROJECTS := pyproject.toml packages/client/pyproject.toml

.PHONY: install demo test lint format bench chaos mutate build lock public-data test-pythons release-check docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: .venv/dev $(if $(TORCH),.venv/torch) ## create .venv with Gavel and all development tools

# An earlier version is removed first: it may own the command that another package brings now.
.venv/empty: $(PROJECTS)
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip uninstall --quiet --quiet --yes gavel-scheduler gavel-client
	touch $@

.venv/gavel: .venv/empty
	$(INSTALL) .
	touch $@

.venv/dev: .venv/empty requirements/dev.lock
	$(INSTALL) '.[dev]' $(LOCK)
	touch .venv/gavel .venv/docs $@

.venv/docs: .venv/empty requirements/dev.lock
	$(INSTALL) '.[docs]' $(LOCK)
	touch .venv/gavel $@

.venv/torch: .venv/dev requirements/torch.lock
	$(INSTALL) '.[frameworks]' $(LOCK)
	touch $@

demo: .venv/gavel ## run the whole live system here, on emulated accelerators
	$(BIN)/gavel demo

test: lint ## lint, types and all tests; TORCH=1 for those that need torch or a framework
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

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

lock: ## write requirements/*.lock with the newest versions that pyproject.toml admits
	$(PYTHON) tools/lock.py

test-pythons: ## install and try it under every supported Python that this machine has
	$(PYTHON) tools/pythons.py

release-check: install build test-pythons ## what a release must pass beside `make test`: packages, Pythons, pages, links
	$(BIN)/python -m pytest tests/packaging/installed.py tests/packaging/test_wheels.py tests/docs/test_site.py
	$(BIN)/mkdocs build --strict

public-data: install ## compare with the public artefact's files and published logs in DATA=DIRECTORY
	@test -d "$(DATA)" || { echo "say where the public files are: make public-data DATA=DIRECTORY"; exit 2; }
	GAVEL_PUBLIC_DATA="$(DATA)" $(BIN)/python -m pytest -n auto $(filter-out %/place.py,$(wildcard tests/public/*.py))

docs: .venv/docs ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

clean: ## remove .venv, packages, the site and caches
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
