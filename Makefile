# Everything runs in a virtual environment of its own, made when there is none. Needs Python 3.11+ and make.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests

.PHONY: demo test test-slow foreign coverage check bench-wake bench-doors generate verify lua wheel clean

demo: $(VENV)/.runtime ## run the main job on the embedded server
	$(BIN)/shampoo demo

test: $(VENV)/.all ## the fast tier, on every engine
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(TESTS)

test-slow: $(VENV)/.all ## the long tier
	$(BIN)/python -m pytest -m slow $(TESTS)

foreign: $(VENV)/.all ## install what others made and our doors are tried with; needs npm, and chromium and prometheus on PATH
	$(BIN)/python tests/foreign/install.py

coverage: $(VENV)/.all ## the fast tier, with the branches that it reaches
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist worksteal -m "not slow" $(TESTS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=95

check: $(VENV)/.all lua ## format, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m shampoo_queue.generate --check

lua: $(VENV)/.all
	@if command -v luacheck >/dev/null; then \
	  rm -rf build/lua && $(BIN)/python -m shampoo_queue.generate --lua build/lua && luacheck -q build/lua; \
	elif [ -n "$$CI" ]; then echo "luacheck is always there in CI" >&2; exit 1; \
	else echo "not run: luacheck is not on PATH (Debian: apt-get install lua-check)" >&2; fi

generate: $(VENV)/.all ## write the derived files
	$(BIN)/python -m shampoo_queue.generate

verify: $(VENV)/.all ## compare the derived files
	$(BIN)/python -m shampoo_queue.generate --check

bench-wake: $(VENV)/.all ## how soon a created job starts, beside other queues
	$(BIN)/python -m benchmarks.wake

bench-doors: $(VENV)/.all ## calls a second over HTTP, beside a bare route
	$(BIN)/python -m benchmarks.doors

wheel: $(VENV)/.all
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

clean:
	rm -rf $(VENV) build dist .coverage* .hypothesis .mypy_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or later is needed" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.all: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[all,dev]'
	@touch $@ $(VENV)/.runtime
