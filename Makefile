# Everything one does with this repository. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Both may be set from outside: make setup PYTHON=python3.12, make demo ARGS="--kills 5"
PYTHON ?= python3
ARGS ?=
# Tests wait for brokers more than they compute: three at a time keep two cores busy.
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Hashes come from the lock files; no isolation: what builds is locked too (requirements/build.lock).
PIP := $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-8s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- environment

.PHONY: setup
setup: $(STAMP) ## Create .venv from the hashed lock files (no-op when nothing changed)

$(STAMP): pyproject.toml requirements/dev.lock requirements/build.lock
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: Python 3.11 or newer is needed ($$($(PYTHON) --version)): make setup PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "make: no venv module: apt-get install python3-venv" >&2; exit 1; }
	@echo "setup: $(VENV) gets the $$(grep -c '==' requirements/dev.lock) locked packages (the first time about 600 MB to download, 450 MB of it Spark)"
	@: > $(VENV)/setup.log
	@$(call pip,--require-hashes -r requirements/build.lock)
	@$(call pip,--require-hashes --no-build-isolation -r requirements/dev.lock)
	@$(call pip,--no-deps --no-build-isolation -e .)
	@touch $@ && echo "setup: done, $$(du -sm $(VENV) | cut -f1) MB in $(VENV)"

# Quiet, except for what is large; pip's whole output is in .venv/setup.log.
pip = { $(PIP) $(1) 2>&1 || touch $(VENV)/failed; } | tee -a $(VENV)/setup.log | sed -u -n -E \
	-e 's/^ *Downloading (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  downloading \2 (\4)/p' \
	-e 's/^ *Using cached (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  from cache \2 (\4)/p'; \
	if test -e $(VENV)/failed; then rm $(VENV)/failed; grep -m 5 ERROR $(VENV)/setup.log >&2; \
	  echo "setup: failed; all of pip's output is in $(VENV)/setup.log" >&2; exit 1; fi

.PHONY: jars
jars: setup ## Fetch the Kafka and Spark jars by Maven into .jars/ (no-op when present)
	@$(call need,java,default-jre-headless,a JDK or JRE 17 or newer runs the test broker and Spark)
	@test -d .jars/kafka -a -d .jars/spark || { $(call need,mvn,maven,Maven fetches the jars); }
	@$(BIN)/python -m snapreplay.service.localbroker.jars
	@$(BIN)/python -m snapreplay.snapshots.jobs.jars

need = command -v $(1) >/dev/null || { echo "make: $(1) is missing ($(3)): apt-get install $(2)" >&2; exit 1; }

.PHONY: lock
lock: ## Resolve the lock files again (needs uv on the PATH; make lock UV_ARGS=--upgrade)
	@$(call need,uv,pipx && pipx install uv,uv resolves for all platforms at once)
	$(LOCK) pyproject.toml --extra spark --extra demo --extra dev -c requirements/build.in -o requirements/dev.lock
	$(LOCK) pyproject.toml -c requirements/dev.lock -o requirements/service.lock
	$(LOCK) pyproject.toml --extra spark -c requirements/dev.lock -o requirements/spark.lock
	$(LOCK) requirements/build.in -c requirements/dev.lock -o requirements/build.lock

# Versions and hashes, no addresses: which registry they come from is the business of the machine.
UV_ARGS ?=
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(UV_ARGS)

# ---------------------------------------------------------------- use

.PHONY: demo
demo: setup jars ## Real broker, real flights, kill -9, recovery, Spark's verdict (ARGS="--kills 5 --seed 7")
	@$(BIN)/python -m examples.demo $(ARGS)

# ---------------------------------------------------------------- quality

.PHONY: test
test: setup jars ## Run all default tests, real broker and Spark included (ARGS="-k claim", JOBS=1)
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: mutants
mutants: setup jars ## Break one rule at a time in a scratch copy: the tests must notice (ARGS="no-claim")
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: check
check: setup ## Format, lint, types, import contracts, tidiness: all that needs no broker
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_packaging.py

.PHONY: format
format: setup ## Format the code and repair what ruff can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SEEDS ?= 10000
START ?= 0
.PHONY: sim
sim: setup ## Simulate histories full of faults, on all cores (SEEDS=100000 START=5000)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(START)

BENCH ?= state stall pipeline restore
.PHONY: bench
bench: setup jars ## Measure (BENCH=state for one of them); results belong in docs/benchmarks.md
	@for name in $(BENCH); do $(BIN)/python -m benchmarks.$$name $(ARGS); done

SECONDS ?= 300
SEED ?= 1
.PHONY: chaos
chaos: setup jars ## Break three real brokers and their clients (SECONDS=300 SEED=7); a checker judges
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) $(ARGS)

MINUTES ?= 15
.PHONY: soak
soak: setup jars ## Steady load and kills; does anything grow? (MINUTES=15 SEED=7); a checker judges
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED)

.PHONY: clean
clean: ## Remove .venv, .jars and what the tools leave behind
	rm -rf $(VENV) .jars build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
