# Everything one does with this repository. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Both may be set from outside: make setup PYTHON=python3.12, make demo ARGS="--kills 5"
PYTHON ?= python3
ARGS ?=
# Tests wait for brokers, too: three at a time keep two cores busy. Each more collects all tests, for 15 s of CPU.
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
SETUP = PYTHON='$(PYTHON)' requirements/setup.sh
# One thing after the other, also with -j: they share .venv, .jars and two cores.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-8s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.DEFAULT:
	@echo "make: there is no target '$@'; make alone lists them" >&2; exit 2

# ---------------------------------------------------------------- environment

.PHONY: setup
setup: ## Create .venv from the hashed lock files (no-op when nothing changed)
	@$(SETUP)

# Everything works without it: docs/internals/adr/0046-a-small-compiled-engine.md.
.PHONY: engine
engine: setup ## Build the compiled engine now, or say why it cannot be built (needs cargo; make setup tries once)
	@engine/build.sh --now

.PHONY: jars
jars: ## The same, and the jars of the Kafka broker by Maven into .jars/ (no-op when present)
	@$(SETUP) --for-jars
	@$(BIN)/python -m snapreplay.devbroker.jars

# A second, older broker for tests only: neither the demo nor `dev` waits for it.
.PHONY: jars-3.9.1
jars-3.9.1:
	@$(SETUP) --for-jars 3.9.1
	@$(BIN)/python -m snapreplay.devbroker.jars 3.9.1

# Debian's package, unpacked and not installed: an installed one starts a server.
.PHONY: prometheus
prometheus: ## Prometheus and promtool into .jars/ (no-op when present), for the tests of deploy/observability
	@test -e .jars/prometheus/usr/bin/promtool || { mkdir -p .jars/prometheus && cd .jars/prometheus \
	  && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; }

.PHONY: helm
helm: ## Helm into .jars/ (no-op when present; needs Go), for the tests that render deploy/helm
	@test -e .jars/helm/helm || GOBIN='$(abspath .jars/helm)' go install helm.sh/helm/v3/cmd/helm@v3.22.0

ENGINE := tests/deploy/docker/engine.sh
DOCKER := .jars/docker
.PHONY: docker
docker: jars prometheus ## The image and compose.yaml by Docker, each process killed under load (root on Debian; Compose is built by Go, five minutes once)
	@$(ENGINE) build $(DOCKER)
	@trap '$(ENGINE) down $(DOCKER)' EXIT; $(ENGINE) up $(DOCKER) && $(ENGINE) images $(DOCKER) && $(BIN)/python -m tests.deploy.docker $(DOCKER)

NODE := tests/deploy/cluster/node.sh
CLUSTER := .jars/kubernetes
.PHONY: cluster
cluster: jars helm ## The chart on a real Kubernetes (root on Debian; the first time it is built from Go modules, a quarter of an hour)
	@$(NODE) build $(CLUSTER) && tests/deploy/cluster/images.sh $(CLUSTER)
	@trap '$(NODE) down $(CLUSTER)' EXIT; $(NODE) up $(CLUSTER) && $(BIN)/python -m tests.deploy.cluster $(CLUSTER)

# The Pythons to test.
PYTHONS ?= $(PYTHON)
.PHONY: wheel
wheel: jars ## The wheel in clean environments: a new project, each extra, the tutorial (PYTHONS="python3.12 python3.13")
	@tests/deploy/wheel.sh $(PYTHONS)

# The last version that runs on Java 17.
APICURIO := 2.6.13.Final
.PHONY: registry
registry: ## A schema registry (Apicurio) into .jars/ by Maven (no-op when present), for the tests with a real one
	@test -e .jars/apicurio/lib || { mkdir -p .jars/apicurio && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
	  -Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO):tar.gz:all -DoutputDirectory=.jars/apicurio \
	  && tar xzf .jars/apicurio/apicurio-registry-app-$(APICURIO)-all.tar.gz -C .jars/apicurio && rm .jars/apicurio/*.tar.gz; }

.PHONY: lock
lock: ## Resolve the lock files again (needs uv on the PATH; make lock UV_ARGS=--upgrade)
	@command -v uv >/dev/null || { echo "make lock: uv is missing: apt-get install pipx && pipx install uv" >&2; exit 1; }
	$(LOCK) pyproject.toml --extra otel --extra registry --extra spark --extra demo --extra docs --extra dev -c requirements/build.in -o requirements/dev.lock
	$(LOCK) pyproject.toml --extra otel -c requirements/dev.lock -o requirements/service.lock
	$(LOCK) pyproject.toml --extra otel --extra registry -c requirements/dev.lock -o requirements/registry.lock
	$(LOCK) pyproject.toml --extra spark -c requirements/dev.lock -o requirements/spark.lock
	$(LOCK) requirements/build.in -c requirements/dev.lock -o requirements/build.lock
	$(LOCK) requirements/audit.in -o requirements/audit.lock

.PHONY: sbom
sbom: setup ## Bills of materials (CycloneDX), licences and known vulnerabilities of all packages, into build/sbom
	@PYTHON='$(PYTHON)' requirements/sbom.sh build/sbom

# Versions and hashes, no addresses: which registry they come from is the business of the machine.
UV_ARGS ?=
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(UV_ARGS)

.PHONY: site
site: setup ## The documentation as a site into build/site: `python3 -m http.server -d build/site`
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Installed apart from the lock files. make lint checks the same files with mypy.
PYRIGHT ?= 1.1.414
.PHONY: pyright
pyright: setup ## Check the examples and a program with all parts of the API by pyright, strictly (needs Node)
	@test -e build/pyright-$(PYRIGHT)/pyright || $(BIN)/pip install --quiet --target build/pyright-$(PYRIGHT) pyright==$(PYRIGHT)
	@PYTHONPATH=build/pyright-$(PYRIGHT) $(BIN)/python -m pyright

# ---------------------------------------------------------------- use

# On a cluster of one's own and without Spark the demo needs no Java.
WITHOUT_JAVA = $(and $(findstring --bootstrap-servers,$(ARGS)),$(findstring --skip-audit,$(ARGS)))
.PHONY: demo
demo: $(if $(WITHOUT_JAVA),setup,jars) ## Real broker, real flights, kill -9, recovery, Spark's verdict (ARGS="--kills 5 --seed 7")
	@$(BIN)/python -m examples.demo $(ARGS)

# ---------------------------------------------------------------- quality

.PHONY: test
test: jars ## `make lint`, beside all tests of `make check` and those with a real broker and Spark (ARGS="tests/api -x": only these)
	$(if $(ARGS),$(TESTED),$(call BESIDE_LINT,$(TESTED)))

# The type check takes half a minute of one core. Beside the tests it costs less of that. Its errors are printed when it ends.
LINTED = mkdir -p build; { $(MAKE) --no-print-directory lint >build/lint.log 2>&1 || { cat build/lint.log >&2; exit 1; }; }
BESIDE_LINT = $(LINTED) & lint=$$!; $(1) || failed=$$?; wait $$lint || failed=$$?; exit $${failed:-0}

.PHONY: whole
whole: jars-3.9.1 jars ## Three brokers, the page, every hint, the examples, the demo, an older Kafka
	$(TESTED) -m whole

TESTED = $(CACHED) $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Compiled files are kept, outside of the tree, in any environment: without them every process that a test
# starts compiles the whole product again.
CACHED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(abspath $(VENV))/pycache'

# Known to work beside the version of all other tests; `make whole` has the first one.
VERSIONS ?= 3.9.1 4.0.1 4.1.1
.PHONY: brokers
brokers: setup jars ## Made, run, killed, recovered on other versions of Kafka (VERSIONS="3.9.1 4.0.1")
	@SNAPREPLAY_TEST_KAFKA_VERSIONS="$(VERSIONS)" $(BIN)/python -m pytest -v tests/service/test_older_brokers.py

# Known to work beside the version of the lock files. It is installed aside, and in front of the other one.
PYSPARK ?= 4.3.0
ASIDE = build/pyspark-$(PYSPARK)
.PHONY: pyspark
pyspark: jars ## Run the tests of the Spark jobs on another PySpark (PYSPARK=4.3.0)
	@test -e $(ASIDE)/.whole || { $(BIN)/pip install --quiet --upgrade --target $(ASIDE) pyspark==$(PYSPARK) && touch $(ASIDE)/.whole; }
	@PYTHONPATH='$(abspath $(ASIDE))' $(BIN)/python -c 'import pyspark; assert pyspark.__version__ == "$(PYSPARK)", pyspark'
	PYTHONPATH='$(abspath $(ASIDE))' $(TESTED) -m spark

.PHONY: mutants
mutants: jars ## Break one rule at a time in a scratch copy: the tests must notice (ARGS="no-claim")
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: lint
lint: setup ## Format, lint, types, import contracts, and whether the mutants still fit
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(CACHED) $(BIN)/python -m pytest -q tests/test_tidy.py tests/test_packaging.py tests/mutants/test_gallery.py

.PHONY: check
check: setup ## Lint, types, and all tests that need nothing outside: pure, in memory, simulated
	$(call BESIDE_LINT,$(CACHED) $(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder -m pure $(ARGS))

.PHONY: format
format: setup ## Format the code and repair what ruff can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SEEDS ?= 10000
START ?= 0
.PHONY: sim
sim: setup ## Simulate histories full of faults, on all cores (SEEDS=100000 START=5000 ARGS=--standbys)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(START) --decisions $(ARGS)

BENCH ?= state stall pipeline restore
.PHONY: bench
bench: jars ## Measure (BENCH=state for one of them); results belong in docs/internals/measurements.md
	@for name in $(BENCH); do \
	  test -e benchmarks/$$name.py || { echo "make bench: there is no benchmark $$name: engine, http_attack, hot_partition, many_partitions, memory, objective, pipeline, restore, rolling_upgrade, spark, stall, state, takeover, timers" >&2; exit 1; }; \
	  $(CACHED) $(BIN)/python -m benchmarks.$$name $(ARGS); done

.PHONY: bench-peers
bench-peers: jars ## This project beside Kafka Streams, Quix and a bare loop, an hour (ARGS="--only restore --runs 1"); fetched into .peers/
	@$(CACHED) $(BIN)/python -m benchmarks.peers $(ARGS)

SECONDS ?= 300
SEED ?= 1
.PHONY: chaos
chaos: jars ## Break three real brokers and their clients (SECONDS=300 SEED=7); a checker judges
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) $(ARGS)

MINUTES ?= 15
.PHONY: soak
soak: jars ## Steady load and kills; does anything grow? (MINUTES=15 SEED=7); a checker judges
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)

.PHONY: clean
clean: ## Remove .venv, .jars and what the tools leave behind
	rm -rf $(VENV) .jars build dist engine/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
