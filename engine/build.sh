#!/usr/bin/env bash
# Builds the compiled engine into .venv if cargo is installed. requirements/setup.sh calls it each time. It does nothing if
# these sources were built already, or if their build failed. `make engine` (--now) always builds, and fails if the build fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/.engine   # result of the last build, and a checksum of its sources
LOG=$VENV/engine.log
MADE=$VENV/engine.$$   # with the process id, because another make may build at the same time
NOW=${1-}

finish() { # finish RESULT MESSAGE
  { rm -f "$STAMP" && echo "$1 $sources" >"$STAMP"; } 2>/dev/null || true # rm first: in a copy of .venv the file may be a hard link
  echo "setup: $2"
  [[ -z $NOW ]] || exit 1
  exit 0
}

if [[ -L $VENV ]]; then exit 0; fi # the environment of another checkout
if [[ ! -w $VENV ]]; then
  echo "setup: cannot write to $VENV, so the compiled engine is not built"
  [[ -z $NOW ]] || exit 1
  exit 0
fi
trap 'rm -f "$MADE"' EXIT
sources=$(cat engine/Cargo.toml engine/src/*.rs | cksum)
before=$(cat "$STAMP" 2>/dev/null) || before=
if [[ -z $NOW && $before == "built $sources" ]]; then exit 0; fi
if ! command -v cargo >/dev/null; then
  if [[ -z $NOW && $before == "no-cargo $sources" ]]; then exit 0; fi
  finish no-cargo "cargo is not installed, so the compiled engine is not built. snapreplay uses its slower Python code instead"
fi
if [[ -z $NOW && $before == "failed $sources" ]]; then exit 0; fi

echo "setup: building the compiled engine with cargo (about half a minute the first time)"
if ! {
  (cd engine && PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON="$PWD/../$VENV/bin/python" CARGO_TARGET_DIR=target \
    CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=20 cargo build --release) &&
    # os.replace, so that a running process keeps the file that it has loaded.
    cp engine/target/release/libsnapreplay_engine.so "$MADE" && "$VENV/bin/python" -c '
import os, sys, sysconfig
from importlib import machinery, util
name, made = "snapreplay_engine", sys.argv[1]
util.module_from_spec(util.spec_from_loader(name, machinery.ExtensionFileLoader(name, made)))
os.replace(made, os.path.join(sysconfig.get_path("platlib"), name + sysconfig.get_config_var("EXT_SUFFIX")))' "$MADE"
} >"$LOG" 2>&1; then
  why=$(grep -m 1 '^error' "$LOG") || why=$(tail -n 1 "$LOG")
  if grep -qiE 'resolve host|failed to (download|fetch|connect)|timed? ?out|download of config.json' "$LOG"; then
    why="cannot download its crates"
  fi
  finish failed "the compiled engine is not built: $why ($LOG). snapreplay uses its slower Python code instead; \`make engine\` tries again"
fi
NOW='' finish built "the compiled engine is built"
