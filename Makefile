# Set up, try, check and measure CRDT Board. Needs make and Python 3.11 or newer; Node 18 or newer for the interop tests.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
INTEROP := tests/interop
NODE_READY := $(INTEROP)/node_modules/.package-lock.json
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python

# Tests wait for half of their time: for timers, other processes and the disk [measured].
# They are handed out two at a time, so that the long ones come to all workers in turn.
WORKERS := $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))

# The tests start hundreds of processes, and each would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-histories check node bench bench-results bench-compare clean

help:
	@echo "make demo    five agents on one board, with a server that is killed in the middle"
	@echo "make test    lint, types, arrows between packages, then all tests"
	@echo "make test-slow    the tests that take minutes"
	@echo "make test-histories    200,000 random histories of replicas (COUNT=, FIRST= the seed of the first)"
	@echo "make check   lint, types and arrows only"
	@echo "make bench   measure everything, some two hours; ONLY='micro growth' for some, OPTIONS=--quick to see that all works"
	@echo "make bench-results    write benchmarks/RESULTS.md anew from what was measured"
	@echo "make bench-compare BASE=<revision>    the same benchmarks on another revision and here, in turn"
	@echo "make venv    only make the environment in $(VENV) (the others do it when it is needed)"
	@echo "make clean   remove the environment, caches and builds"

venv: $(READY)

$(READY): pyproject.toml
	@python=; \
	for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "CRDT Board needs Python 3.11 or newer, and none was found on the PATH" >&2; exit 1; fi; \
	echo "Setting up $(VENV) with $$("$$python" --version) (takes a minute, once)"; \
	"$$python" -m venv $(VENV) || { \
	  echo "Python cannot make environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev,server]'
	@touch $@

demo: venv
	@$(BIN)/crdt-board demo

check: venv
	@echo "Format";  $(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@echo "Lint";    $(BIN)/ruff check --quiet .
	@echo "Types";   $(BIN)/mypy
	@echo "Arrows";  $(BIN)/lint-imports

# The interop tests say themselves what is missing: skipped on a laptop, failed where CI=true.
node: $(if $(and $(shell command -v npm),$(wildcard $(INTEROP)/package-lock.json)),$(NODE_READY))

$(NODE_READY): $(INTEROP)/package-lock.json
	@echo "Installing the Node packages of the interop tests"
	@npm ci --prefix $(INTEROP) --silent --no-audit --no-fund
	@touch $@

test: check node
	@echo "Tests"
	@$(BIN)/pytest -n $(WORKERS) --maxschedchunk 2 $(if $(CI),--durations=15)

test-slow: venv node
	@$(BIN)/pytest -m slow

test-histories: venv
	@PYTHONPATH=tests $(BIN)/python -m support.histories --count $(or $(COUNT),200000) --first $(or $(FIRST),0)

# Sync servers need Linux, Node, npm and a C compiler: the other ones are installed into a cache outside the project.
bench: $(BENCH_READY)
	@$(BIN)/python -m benchmarks.run_all $(OPTIONS) $(ONLY)

# From the JSON that is there; measures nothing.
bench-results: venv
	@$(BIN)/python -m benchmarks.summary

bench-compare: venv
	@test -n "$(BASE)" || { echo "say what to compare with: make bench-compare BASE=<revision>" >&2; exit 1; }
	@$(BIN)/python -m benchmarks.compare $(OPTIONS) $(BASE) $(ONLY)

$(BENCH_READY): pyproject.toml $(READY)
	@echo "Installing what is measured beside CRDT Board"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@

clean:
	rm -rf $(VENV) $(INTEROP)/node_modules dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
