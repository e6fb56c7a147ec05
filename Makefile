# Everything runs in .venv, which `make install` creates; no other set-up is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint format bench chaos mutate docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install: .venv/installed ## create .venv with Gavel and all development tools

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch .venv/installed

demo: install ## show what heterogeneity awareness is worth on one mixed cluster
	$(BIN)/gavel demo

test: lint ## lint, types and all tests
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

docs: install ## the documentation as a site, in site/
	$(BIN)/mkdocs build --strict

clean: ## remove .venv, the site and caches
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis
