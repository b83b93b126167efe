#!/usr/bin/env bash
# Builds the compiled engine into .venv if cargo is there. requirements/setup.sh calls it each time: nothing happens when
# it was built, or could not be built, from these sources. `make engine` (--now) tries again and fails if that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/.engine   # what became of which sources
LOG=$VENV/engine.log
MADE=$VENV/engine.$$   # another make may build at the same time
NOW=${1-}

says() { # what became of it, and one line
  { rm -f "$STAMP" && echo "$1 $sources" >"$STAMP"; } 2>/dev/null || true # a copy of .venv may be a hard link
  echo "setup: $2"
  [[ -z $NOW ]] || exit 1
  exit 0
}

if [[ -L $VENV ]]; then exit 0; fi # another checkout's environment
if [[ ! -w $VENV ]]; then
  echo "setup: $VENV cannot be written, so the compiled engine is not built"
  [[ -z $NOW ]] || exit 1
  exit 0
fi
trap 'rm -f "$MADE"' EXIT
sources=$(cat engine/Cargo.toml engine/src/*.rs | cksum)
before=$(cat "$STAMP" 2>/dev/null) || before=
if [[ -z $NOW && $before == "built $sources" ]]; then exit 0; fi
if ! command -v cargo >/dev/null; then
  if [[ -z $NOW && $before == "no-cargo $sources" ]]; then exit 0; fi
  says no-cargo "there is no cargo, so the compiled engine is not built: Python does its work, more slowly"
fi
if [[ -z $NOW && $before == "failed $sources" ]]; then exit 0; fi

echo "setup: cargo builds the compiled engine (the first time about half a minute)"
if ! {
  (cd engine && PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON="$PWD/../$VENV/bin/python" CARGO_TARGET_DIR=target \
    CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=20 cargo build --release) &&
    # Renamed into its place: a process that runs keeps the file that it has loaded.
    cp engine/target/release/libsnapreplay_engine.so "$MADE" && "$VENV/bin/python" -c '
import os, sys, sysconfig
from importlib import machinery, util
name, made = "snapreplay_engine", sys.argv[1]
util.module_from_spec(util.spec_from_loader(name, machinery.ExtensionFileLoader(name, made)))
os.replace(made, os.path.join(sysconfig.get_path("platlib"), name + sysconfig.get_config_var("EXT_SUFFIX")))' "$MADE"
} >"$LOG" 2>&1; then
  why=$(grep -m 1 '^error' "$LOG") || why=$(tail -n 1 "$LOG")
  if grep -qiE 'resolve host|failed to (download|fetch|connect)|timed? ?out|download of config.json' "$LOG"; then
    why="its crates cannot be downloaded"
  fi
  says failed "the compiled engine is not built: $why ($LOG). Python does its work, more slowly; \`make engine\` tries again"
fi
NOW='' says built "the compiled engine is built"
