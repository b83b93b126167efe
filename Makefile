# The commands of this repository. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Set both on the command line: make setup PYTHON=python3.12, make demo ARGS="--kills 5"
PYTHON ?= python3
ARGS ?=
# Three workers keep two cores busy, because tests also wait for brokers. Each worker spends 15 s of CPU on collecting the tests.
JOBS ?= 3
VENV := .venv
BIN := $(VENV)/bin
SETUP = PYTHON='$(PYTHON)' requirements/setup.sh
# One target at a time, even with -j: the targets share .venv, .jars and two cores.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-11s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.DEFAULT:
	@echo "make: there is no target '$@'; make alone lists them" >&2; exit 2

# ---------------------------------------------------------------- environment

.PHONY: setup
setup: ## Create .venv from the hashed lock files (does nothing if it is complete)
	@$(SETUP)

# The engine is optional: docs/internals/adr/0046-a-small-compiled-engine.md.
.PHONY: engine
engine: setup ## Build the compiled engine, or say why it cannot be built (needs cargo; `make setup` tries once)
	@engine/build.sh --now

.PHONY: jars
jars: ## `make setup`, then fetch the jars of the Kafka broker into .jars/ with Maven (does nothing if they are there)
	@$(SETUP) --for-jars
	@$(BIN)/python -m snapreplay.devbroker.jars

# A second, older broker, which only tests use. The demo and `dev` do not need it.
.PHONY: jars-3.9.1
jars-3.9.1:
	@$(SETUP) --for-jars 3.9.1
	@$(BIN)/python -m snapreplay.devbroker.jars 3.9.1

# Unpacks Debian's package without installing it, because an installed package starts a server.
.PHONY: prometheus
prometheus: ## Fetch Prometheus and promtool into .jars/ (does nothing if they are there), for the tests of deploy/observability
	@test -e .jars/prometheus/usr/bin/promtool || { mkdir -p .jars/prometheus && cd .jars/prometheus \
	  && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb; }

.PHONY: helm
helm: ## Build Helm into .jars/ (does nothing if it is there; needs Go), for the tests that render deploy/helm
	@test -e .jars/helm/helm || GOBIN='$(abspath .jars/helm)' go install helm.sh/helm/v3/cmd/helm@v3.22.0

ENGINE := tests/deploy/docker/engine.sh
DOCKER := .jars/docker
.PHONY: docker
docker: jars prometheus ## Run the image and compose.yaml in Docker, and kill each process under load (root on Debian; the first run builds Compose with Go, five minutes)
	@$(ENGINE) build $(DOCKER)
	@trap '$(ENGINE) down $(DOCKER)' EXIT; $(ENGINE) up $(DOCKER) && $(ENGINE) images $(DOCKER) && $(BIN)/python -m tests.deploy.docker $(DOCKER)

NODE := tests/deploy/cluster/node.sh
CLUSTER := .jars/kubernetes
.PHONY: cluster
cluster: jars helm ## Run the chart on a real Kubernetes (root on Debian; the first run builds Kubernetes from Go modules, a quarter of an hour)
	@$(NODE) build $(CLUSTER) && tests/deploy/cluster/images.sh $(CLUSTER)
	@trap '$(NODE) down $(CLUSTER)' EXIT; $(NODE) up $(CLUSTER) && $(BIN)/python -m tests.deploy.cluster $(CLUSTER)

# The Pythons to test.
PYTHONS ?= $(PYTHON)
.PHONY: wheel
wheel: jars ## Test the wheel in clean environments: a new project, each extra, the tutorial (PYTHONS="python3.12 python3.13")
	@tests/deploy/wheel.sh $(PYTHONS)

# The last version that runs on Java 17.
APICURIO := 2.6.13.Final
.PHONY: registry
registry: ## Fetch a schema registry (Apicurio) into .jars/ with Maven (does nothing if it is there), for the tests with a real one
	@test -e .jars/apicurio/lib || { mkdir -p .jars/apicurio && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
	  -Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO):tar.gz:all -DoutputDirectory=.jars/apicurio \
	  && tar xzf .jars/apicurio/apicurio-registry-app-$(APICURIO)-all.tar.gz -C .jars/apicurio && rm .jars/apicurio/*.tar.gz; }

.PHONY: lock
lock: ## Resolve the lock files again (needs uv on the PATH; UV_ARGS=--upgrade for newer versions)
	@command -v uv >/dev/null || { echo "make lock: there is no command uv: apt-get install pipx && pipx install uv" >&2; exit 1; }
	$(LOCK) pyproject.toml --extra otel --extra registry --extra spark --extra demo --extra docs --extra dev -c requirements/build.in -o requirements/dev.lock
	$(LOCK) pyproject.toml --extra otel -c requirements/dev.lock -o requirements/service.lock
	$(LOCK) pyproject.toml --extra otel --extra registry -c requirements/dev.lock -o requirements/registry.lock
	$(LOCK) pyproject.toml --extra spark -c requirements/dev.lock -o requirements/spark.lock
	$(LOCK) requirements/build.in -c requirements/dev.lock -o requirements/build.lock
	$(LOCK) requirements/audit.in -o requirements/audit.lock

.PHONY: sbom
sbom: setup ## Write bills of materials (CycloneDX), licences and known vulnerabilities of all packages into build/sbom
	@PYTHON='$(PYTHON)' requirements/sbom.sh build/sbom

# The lock files have versions and hashes, but no addresses: each machine configures its own package index.
UV_ARGS ?=
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(UV_ARGS)

.PHONY: site
site: setup ## Build the documentation as a site into build/site (`python3 -m http.server -d build/site` serves it)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Pyright is not in the lock files. `make lint` checks the same files with mypy.
PYRIGHT ?= 1.1.414
.PHONY: pyright
pyright: setup ## Check the examples, and a program that uses the whole API, with pyright in strict mode (needs Node)
	@test -e build/pyright-$(PYRIGHT)/pyright || $(BIN)/pip install --quiet --target build/pyright-$(PYRIGHT) pyright==$(PYRIGHT)
	@PYTHONPATH=build/pyright-$(PYRIGHT) $(BIN)/python -m pyright

# ---------------------------------------------------------------- use

# On another cluster and without Spark, the demo needs no Java.
WITHOUT_JAVA = $(and $(findstring --bootstrap-servers,$(ARGS)),$(findstring --skip-audit,$(ARGS)))
.PHONY: demo
demo: $(if $(WITHOUT_JAVA),setup,jars) ## Kill a service on a real broker with `kill -9`, compact, and check the result with Spark (ARGS="--kills 5 --seed 7")
	@$(BIN)/python -m examples.demo $(ARGS)

# ---------------------------------------------------------------- quality

.PHONY: test
test: jars ## `make check`, and the tests with a real broker, Spark and a browser (ARGS="tests/api -x": only these, without lint)
	$(if $(ARGS),$(TESTED),$(call BESIDE_LINT,$(TESTED)))

# Lint takes half a minute of one core. It runs in parallel with the tests, and its errors are printed when it ends.
LINTED = mkdir -p build; { $(MAKE) --no-print-directory lint >build/lint.log 2>&1 || { cat build/lint.log >&2; exit 1; }; }
BESIDE_LINT = $(LINTED) & lint=$$!; $(1) || failed=$$?; wait $$lint || failed=$$?; exit $${failed:-0}

.PHONY: whole
whole: jars-3.9.1 jars ## Run the slow tests: three brokers, the page, every hint, the examples, the demo, an older Kafka
	$(TESTED) -m whole

TESTED = $(CACHED) $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Keep compiled files, outside of the source tree. Otherwise every process that a test starts compiles all modules again.
CACHED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX='$(abspath $(VENV))/pycache'

# Other versions that are known to work. `make whole` tests the first one.
VERSIONS ?= 3.9.1 4.0.1 4.1.1
.PHONY: brokers
brokers: setup jars ## Create, run, kill and recover an app on other versions of Kafka (VERSIONS="3.9.1 4.0.1")
	@SNAPREPLAY_TEST_KAFKA_VERSIONS="$(VERSIONS)" $(BIN)/python -m pytest -v -m whole tests/service/test_older_brokers.py

# Another version that is known to work. It is installed into its own folder, which comes first on PYTHONPATH.
PYSPARK ?= 4.3.0
PYSPARK_DIR = build/pyspark-$(PYSPARK)
.PHONY: pyspark
pyspark: jars ## Run the tests of the Spark jobs on another PySpark (PYSPARK=4.3.0)
	@test -e $(PYSPARK_DIR)/.whole || { $(BIN)/pip install --quiet --upgrade --target $(PYSPARK_DIR) pyspark==$(PYSPARK) && touch $(PYSPARK_DIR)/.whole; }
	@PYTHONPATH='$(abspath $(PYSPARK_DIR))' $(BIN)/python -c 'import pyspark; assert pyspark.__version__ == "$(PYSPARK)", pyspark'
	PYTHONPATH='$(abspath $(PYSPARK_DIR))' $(TESTED) -m spark

.PHONY: mutants
mutants: jars ## Break one rule at a time in a scratch copy, and check that the tests fail (ARGS="no-claim": only this one)
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: lint
lint: setup ## Check format, lint, types, import contracts, and that the mutants still apply to the source
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(CACHED) $(BIN)/python -m pytest -q tests/test_tidy.py tests/test_packaging.py tests/mutants/test_gallery.py

.PHONY: check
check: setup ## `make lint`, and all tests that run in one process: pure, in memory, simulated
	$(call BESIDE_LINT,$(CACHED) $(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile --no-loadscope-reorder -m pure $(ARGS))

.PHONY: format
format: setup ## Format the code, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SEEDS ?= 10000
START ?= 0
.PHONY: sim
sim: setup ## Simulate runs with many faults, on all cores (SEEDS=100000 START=5000 ARGS=--standbys)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --start $(START) --decisions $(ARGS)

BENCH ?= state stall pipeline restore
.PHONY: bench
bench: jars ## Run the benchmarks (BENCH=state: only this one); their figures belong in docs/internals/measurements.md
	@for name in $(BENCH); do \
	  test -e benchmarks/$$name.py || { echo "make bench: there is no benchmark $$name: engine, fold, hot_partition, http_attack, latency, many_partitions, memory, objective, pipeline, restore, rolling_upgrade, spark, stall, standby, state, takeover, timers" >&2; exit 1; }; \
	  $(CACHED) $(BIN)/python -m benchmarks.$$name $(ARGS); done

.PHONY: bench-peers
bench-peers: jars ## Compare with Kafka Streams, Quix Streams and a bare loop, for an hour (ARGS="--only restore --runs 1"); fetches them into .peers/
	@$(CACHED) $(BIN)/python -m benchmarks.peers $(ARGS)

SECONDS ?= 300
SEED ?= 1
.PHONY: chaos
chaos: jars ## Inject faults into three real brokers and their clients, then check the result (SECONDS=300 SEED=7)
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED) $(ARGS)

MINUTES ?= 15
.PHONY: soak
soak: jars ## Run under steady load and kills, watch for growth, then check the result (MINUTES=15 SEED=7)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)

.PHONY: clean
clean: ## Remove .venv, .jars and the caches of the tools
	rm -rf $(VENV) .jars build dist engine/target .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
