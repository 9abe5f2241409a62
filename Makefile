# Every target makes .venv first where the pinned list or pyproject.toml changed.
PYTHON ?= python3
# Two workers; a file's tests stay together, so that they share what they import.
PYTEST_ARGS ?= -n 2 --dist loadfile

BIN := .venv/bin
STAMP := .venv/.made-from-this-list

.PHONY: setup demo test lint docs bench-convert clean

setup: $(STAMP)

$(STAMP): requirements/cpu.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/cpu.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Rewrites the generated pages; a test fails where one is not current.
docs: setup
	$(BIN)/python docs/generate.py

bench-convert: setup
	$(BIN)/python examples/bench_convert.py

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
