# The service, without an app: `docker build -t snapreplay .`, then FROM it (deploy/README.md).
# The image has no Java, so `snapreplay dev` does not work in it. Spark jobs have their own image
# (`docker build --target spark -t snapreplay-spark .`).
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# `--build-arg LOCK=registry` adds the packages for Avro, JSON Schema and Protobuf.
ARG LOCK=service
# The layers that rarely change come first. Every package has a hash in the lock files, and none is compiled here.
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

# The same with Spark. pyspark has only a source package, which is built here.
FROM build AS build-spark
# Java's package needs a folder for manuals, which a slim base image lacks.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends default-jre-headless
COPY requirements/spark.lock requirements/
RUN /opt/build/bin/pip wheel --require-hashes --no-build-isolation --only-binary :all: \
    --no-binary pyspark -w wheels -r requirements/spark.lock \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install --no-deps --no-index \
    wheels/*.whl

FROM ${PYTHON_IMAGE} AS spark
# Hadoop's libraries, which Spark uses, need a user with a name.
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
# Spark on Kubernetes passes "driver" or "executor".
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
# A numeric id, so that Kubernetes can verify that it is not root.
USER 10001:10001
EXPOSE 8080
# Liveness, not readiness: a restore may take long, and a FAILED partition waits for an operator. Neither needs a restart.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/opt/snapreplay/bin/health.sh"]
# Exec form: SIGTERM must reach Python, which then finishes its batch.
ENTRYPOINT ["snapreplay", "run"]
CMD ["app.py"]
