# `make demo` and `make test` do all their set-up by themselves: a virtual environment and what belongs in it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without compiling: Python compiles what is imported, which is a small part of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# Two test processes of one thread each use two cores better than one process of two threads.
TEST_PROCESSES ?= 2
export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || echo 1)

.PHONY: demo test slow check coverage benchmark clean

demo: $(VENV)/installed
	$(BIN)/sottovoce audit

test: $(VENV)/installed-test check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(TEST_PROCESSES)

slow: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n $(TEST_PROCESSES)

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Which lines the tests of `make test` reach, in all and by file, and which tests take longest.
coverage: $(VENV)/installed-test
	$(PIP) --editable '.[coverage]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(TEST_PROCESSES) --cov --durations=25

benchmark: $(VENV)/installed-test
	$(PIP) --editable '.[benchmark]'
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage .coverage.*

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sottovoce needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/made pyproject.toml constraints.txt
	$(PIP) --editable '.[test]'
	tools/install_test_packages.sh
	touch $(VENV)/installed $@
