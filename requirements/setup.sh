#!/usr/bin/env bash
# Makes .venv from the hashed lock files; nothing happens when it is whole. Called by make:
#
#   PYTHON=python3 requirements/setup.sh [--for-jars [VERSION]]
#
# --for-jars: Java and Maven are looked for as well, before anything is downloaded; for this other
# VERSION of Kafka, too. Interrupted or killed at any moment, the next run repairs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
VENV=.venv
LOG=$VENV/setup.log    # written first: all that pip says
STAMP=$VENV/.installed # written last: without it, what lies beside the log is half of something
INPUTS=(pyproject.toml requirements/dev.lock requirements/build.lock)

die() {
  echo "setup: $*" >&2
  exit 1
}

# An environment that was moved or copied, or whose Python is gone, is still there and would run other code.
runs_this_checkout() {
  grep -qsF "$(pwd -P)/$VENV/bin/python" "$VENV/bin/snapreplay" && "$VENV/bin/python" -I -c '
import os, snapreplay
assert os.path.samefile(os.path.dirname(snapreplay.__file__), "snapreplay")' 2>/dev/null
}

is_whole() {
  # A link is another checkout's environment, shared on purpose: nothing is installed into it.
  if [[ -L $VENV && -x $VENV/bin/python ]]; then return 0; fi
  [[ -e $STAMP ]] || return 1
  local input
  for input in "${INPUTS[@]}"; do
    [[ ! $input -nt $STAMP ]] || return 1
  done
  runs_this_checkout
}

SUITS='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

another_python() {
  local each
  for each in python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
    if "$each" -c "$SUITS" 2>/dev/null; then
      echo "make setup PYTHON=$each"
      return
    fi
  done
  echo "apt-get install python3 python3-venv"
}

check_python() {
  local said
  command -v "$PYTHON" >/dev/null || die "there is no command $PYTHON: $(another_python)"
  # Found is not enough: a shim of pyenv or asdf is there for versions that are not active.
  said=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) ||
    die "$PYTHON does not run ($(head -n 1 <<<"$said")): activate that version, or $(another_python)"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is needed, $PYTHON is $said: $(another_python)"
  "$PYTHON" -c "$SUITS" 2>/dev/null ||
    die "$PYTHON has no module venv or ensurepip: apt-get install python$said-venv"
}

# The standard library is enough for this; says itself what is missing.
check_tools() {
  "$PYTHON" -B -m snapreplay.devbroker.jars --check
  if (($#)); then "$PYTHON" -B -m snapreplay.devbroker.jars --check "$1"; fi
}

only_one() {
  exec 9<requirements
  flock --nonblock 9 || {
    echo "setup: another make works on $VENV: waiting for it"
    flock 9
  }
}

# From what an earlier run left, or from nothing, to an environment that pip can install into.
prepare() {
  local said
  if [[ -e $STAMP ]] && ! runs_this_checkout; then
    anew "$VENV does not run this checkout: one of the two was moved, or its Python is gone"
  elif [[ ! -e $STAMP && -e $LOG ]]; then
    anew "an earlier run did not come to its end"
  fi
  said=$({ mkdir -p "$VENV" && rm -f "$STAMP" && touch "$LOG"; } 2>&1) || cannot_write "$said"
  : >"$LOG"
  if [[ ! -e $VENV/bin/python ]]; then
    "$PYTHON" -m venv "$VENV" >>"$LOG" 2>&1 || die "no environment can be made: $(tail -n 1 "$LOG")"
  elif ! "$VENV/bin/python" -m pip --version >>"$LOG" 2>&1; then
    rm -f "$LOG" # it is not ours
    die "$VENV was there before, without a pip that runs: rm -rf $VENV, then again"
  fi
}

anew() {
  local said
  echo "setup: $1. It is made anew; what was downloaded is in pip's cache"
  said=$(rm -rf "$VENV" 2>&1) || cannot_write "$said"
}

cannot_write() {
  die "this checkout cannot be written ($(head -n 1 <<<"$1")): work as $(stat -c %U .), or in a clone of your own"
}

# Quiet, except for what takes long.
install() {
  "$VENV/bin/python" -m pip --disable-pip-version-check install --progress-bar off "$@" 2>&1 |
    tee -a "$LOG" | sed -u -n -E \
    -e 's/^ *Downloading (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  downloading \2 (\4)/p' \
    -e 's/^ *Using cached (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  from cache \2 (\4)/p' \
    -e 's/^ *Building wheel for ([^ ]+) .*: started.*/  building \1/p' \
    -e 's/^ *Installing collected packages: ([^,]*, ){20}.*/  installing all of them/p' \
    -e 's/^ *WARNING: Retrying .*/  the package index does not answer: trying again/p' || failed
}

failed() {
  local error reason
  error=$(grep -m 1 '^ *ERROR: ' "$LOG") || error=$(tail -n 1 "$LOG")
  reason=$(grep '^ *WARNING: Retrying ' "$LOG" | tail -n 1) || reason=
  if [[ $reason && $error == *"find a version"* ]]; then # pip's words for: nobody answered
    reason=$(sed -E "s/.*connection broken by '(.*)': [^']*/\1/; s/.*: //; s/[]')\"]+$//" <<<"$reason")
    error="the package index cannot be reached ($reason): check the network, the proxy and 'pip config list'"
  elif [[ $error == *"ERROR: Exception:"* ]]; then
    error=$(tail -n 1 "$LOG")
  fi
  die "$error. All of pip's output is in $LOG"
}

# Without it everything works, so it never fails.
build_engine() {
  if [[ -x engine/build.sh ]]; then exec engine/build.sh; fi
}

if is_whole; then
  build_engine
  exit 0
fi
check_python
if [[ ${1-} == --for-jars ]]; then check_tools "${@:2}"; fi
trap 'echo "setup: interrupted. The next make setup begins anew, with what was downloaded" >&2; exit 130' INT TERM
only_one
if is_whole; then # the other one has done it
  build_engine
  exit 0
fi
prepare
echo "setup: $VENV gets the $(grep -c '==' requirements/dev.lock) locked packages (the first time about 660 MB to download, 450 MB of it Spark)"
# No isolation: what builds is locked too (requirements/build.lock).
install --require-hashes -r requirements/build.lock
install --require-hashes --no-build-isolation -r requirements/dev.lock
install --no-deps --no-build-isolation -e .
# Relative: Python reads this file in the locale's encoding, and in the plain C locale an umlaut ends it.
for link in "$VENV"/lib/python*/site-packages/*snapreplay.pth; do echo ../../../.. >"$link"; done
touch "$STAMP"
echo "setup: done, $(du -sm "$VENV" | cut -f1) MB in $VENV"
build_engine
