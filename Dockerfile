# The service, without an app: `docker build -t snapreplay .`, then FROM it (deploy/README.md).
# No Java in here: the local broker of `dev` and the Spark jobs run elsewhere.
# tests/deploy/test_image.py performs these steps, in this order, into an empty folder.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# First what changes seldom. Every package has a hash in the lock files, and none is compiled here.
COPY requirements/build.lock requirements/service.lock requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.lock
RUN python -m venv --without-pip /opt/snapreplay \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install \
    --require-hashes --only-binary :all: -r requirements/service.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY snapreplay snapreplay
COPY service service
COPY snapshots snapshots
COPY api api
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist \
 && /opt/build/bin/pip --python /opt/snapreplay/bin/python install --no-deps --no-index dist/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/snapreplay /opt/snapreplay
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
    CMD ["snapreplay", "health"]
# Exec form: SIGTERM must reach Python, which then finishes its batch.
ENTRYPOINT ["snapreplay", "run"]
CMD ["app.py"]
