# Two commands on a fresh machine: `make run` and `make test`. Needs make and Python 3.11 or newer.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CONFIG ?=

.PHONY: run test test-live test-slow lint format bench clean system

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Gustfront needs Python 3.11 or newer; $(PYTHON) is older. Fix: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); sh scripts/system-packages python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# With a configuration (CONFIG=FILE, or ./gustfront.yaml) your fleet; without one a demonstration, which says that it is one.
run: $(STAMP)
ifneq ($(CONFIG)$(wildcard gustfront.yaml),)
	$(BIN)/gustfront $(if $(CONFIG),--config $(CONFIG)) run
else
	@echo "No configuration: showing a simulated fleet. For yours: make run CONFIG=gustfront.yaml (see gustfront.example.yaml)"
	$(BIN)/gustfront demo
endif

# What the tests need beyond Python is installed where that is allowed (root on Debian); elsewhere those tests skip and say why.
system:
	@sh scripts/system-packages prometheus prometheus-alertmanager postgresql chromium zstd

# On all cores, at most four; tests of a module stay together. In the order of their folders: the long histories begin first.
test: $(STAMP) system
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-live: $(STAMP)
	$(BIN)/python -m tests.live.prepare
	$(BIN)/pytest -m live tests/live

# The demonstration's story from beginning to end, in Chromium.
test-slow: $(STAMP) system
	$(BIN)/pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) system
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis tests/screenshots bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
