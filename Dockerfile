# The service, without an app: `docker build -t snapreplay .`, then FROM it (deploy/README.md).
# No Java in there: the local broker of `dev` runs elsewhere, the Spark jobs in an image of their own
# (`docker build --target spark -t snapreplay-spark .`).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# `--build-arg LOCK=registry`: with what a schema registry's formats need.
ARG LOCK=service
# First what changes seldom. Every package has a hash in the lock files, and none is compiled here.
COPY requirements/build.lock requirements/service.lock requirements/registry.lock requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.lock
RUN python -m venv --without-pip /opt/snapreplay \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install \
    --require-hashes --only-binary :all: -r requirements/$LOCK.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY snapreplay snapreplay
COPY service service
COPY snapshots snapshots
COPY api api
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install --no-deps --no-index dist/*.whl

# The same, with Spark: of pyspark there is only a source package, which is built here.
FROM build AS build-spark
# A slim base has no folder for manuals, and Java's package does not install without it.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends default-jre-headless
COPY requirements/spark.lock requirements/
RUN /opt/build/bin/pip wheel --require-hashes --no-build-isolation --only-binary :all: \
    --no-binary pyspark -w wheels -r requirements/spark.lock \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install --no-deps --no-index \
    wheels/*.whl

FROM ${PYTHON_IMAGE} AS spark
# A user with a name: Hadoop's libraries, which Spark uses, do not start without one.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends default-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --home-dir /app snapreplay
COPY --from=build-spark /opt/snapreplay /opt/snapreplay
COPY deploy/spark-entrypoint.sh /opt/entrypoint.sh
ENV PATH=/opt/snapreplay/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/snapreplay/bin/python \
    SPARK_HOME=/opt/snapreplay/lib/python3.11/site-packages/pyspark
WORKDIR /app
USER 10001:10001
# "driver" and "executor" are how Spark on Kubernetes calls it.
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["snapreplay", "audit", "--help"]

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/snapreplay /opt/snapreplay
COPY deploy/health.sh /opt/snapreplay/bin/
ENV PATH=/opt/snapreplay/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SNAPREPLAY_HTTP__HOST=0.0.0.0
WORKDIR /app
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
EXPOSE 8080
# Alive, not ready: a restore may take its time, and a failed partition waits for a person.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/opt/snapreplay/bin/health.sh"]
# Exec form: SIGTERM must reach Python, which then finishes its batch.
ENTRYPOINT ["snapreplay", "run"]
CMD ["app.py"]
