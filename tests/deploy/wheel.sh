#!/usr/bin/env bash
# Tests the wheel in a clean environment of each Python, outside of the checkout: wheel.sh PYTHON... (make wheel PYTHONS="...")
#
# It runs `snapreplay new` and the tests of the new project, without and with Java. It checks the error message for each
# missing extra, and each extra alone. Then it runs the commands of the tutorial and the README.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m hatchling build -t wheel -d "$work" >/dev/null
wheel=$(echo "$work"/*.whl)
export SNAPREPLAY_JARS_DIR=$root/.jars/kafka PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

check() { # check EXTRA PACKAGE CODE: without PACKAGE, CODE fails and names the pip command. With only EXTRA installed, it works
  local said
  "$python" -m pip uninstall -q -y "$2" 2>/dev/null
  said=$("$python" -c "$3" 2>&1) && { echo "this code works without the extra $1, but should not: $3" >&2; exit 1; }
  grep -qF "pip install 'snapreplay[$1]'" <<<"$said" || { echo "$said" >&2; exit 1; }
  "$wanted" -m venv "$work/extra" && "$work/extra/bin/pip" install -q "$wheel[$1]"
  "$work/extra/bin/python" -c "$3"
  rm -r "$work/extra"
}

for wanted; do
  folder=$work/clean python=$work/clean/bin/python
  "$wanted" -m venv "$folder"
  (
    cd "$folder"
    bin/pip install -q "$wheel" pytest pytest-asyncio
    bin/snapreplay new my-ledger
    cd my-ledger
    env -u JAVA_HOME PATH="$folder/bin" "$python" -m pytest -q -p no:cacheprovider # without Java
    "$python" -m pytest -q -p no:cacheprovider
    settings='from snapreplay.service.config.settings import Settings, load_settings'
    registry='from snapreplay import SchemaRegistry, avro; registry = SchemaRegistry("http://127.0.0.1:1")'
    check registry confluent-kafka "$registry
from google.protobuf.wrappers_pb2 import Int32Value; import jsonschema
registry.avro(int), registry.json(int), registry.protobuf(Int32Value), avro(int)"
    check spark pyspark "$settings; from snapreplay.errors import RetryableError; from snapreplay.spark import audit
try: audit(Settings(kafka={'bootstrap.servers': '127.0.0.1:1'}), 'x')
except RetryableError: pass"
    check otel opentelemetry-api "$settings; load_settings(environment={'SNAPREPLAY_TRACING': 'spans'})"
  )
  "$folder/bin/pip" install -q "$wheel"
  SNAPREPLAY_TEST_BIN=$folder/bin .venv/bin/python -m pytest -q -m whole tests/docs/test_tutorial.py
  "$python" -c 'import platform; print("the wheel works on Python", platform.python_version())'
  rm -r "$folder"
done
