#!/usr/bin/env bash
# Creates .venv from the hashed lock files, and does nothing if it is complete. make calls it:
#
#   PYTHON=python3 requirements/setup.sh [--for-jars [VERSION]]
#
# --for-jars also checks for Java and Maven before it downloads anything, for the usual version of Kafka and for VERSION.
# You may interrupt or kill it at any moment: the next run repairs .venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
VENV=.venv
LOG=$VENV/setup.log    # created first; has the output of pip
STAMP=$VENV/.installed # created last: without it, the installation is incomplete
INPUTS=(pyproject.toml requirements/dev.lock requirements/build.lock)

die() {
  echo "setup: $*" >&2
  exit 1
}

# The environment may have been moved or copied, and would then run the code of another checkout. Or its Python was removed.
runs_this_checkout() {
  grep -qsF "$(pwd -P)/$VENV/bin/python" "$VENV/bin/snapreplay" && "$VENV/bin/python" -I -c '
import os, snapreplay
assert os.path.samefile(os.path.dirname(snapreplay.__file__), "snapreplay")' 2>/dev/null
}

is_complete() {
  # A symbolic link leads to the environment of another checkout, which is shared on purpose: install nothing into it.
  if [[ -L $VENV && -x $VENV/bin/python ]]; then return 0; fi
  [[ -e $STAMP ]] || return 1
  local input
  for input in "${INPUTS[@]}"; do
    [[ ! $input -nt $STAMP ]] || return 1
  done
  runs_this_checkout
}

SUITS='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

python_to_use() {
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
  command -v "$PYTHON" >/dev/null || die "there is no command $PYTHON: $(python_to_use)"
  # The command may exist and not run: pyenv and asdf have shims for inactive versions, too.
  said=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) ||
    die "$PYTHON does not run ($(head -n 1 <<<"$said")): activate that version, or $(python_to_use)"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer is required, but $PYTHON is $said: $(python_to_use)"
  "$PYTHON" -c "$SUITS" 2>/dev/null ||
    die "$PYTHON lacks the module venv or ensurepip: apt-get install python$said-venv"
}

# Needs only the standard library. It prints what is missing.
check_tools() {
  "$PYTHON" -B -m snapreplay.devbroker.jars --check
  if (($#)); then "$PYTHON" -B -m snapreplay.devbroker.jars --check "$1"; fi
}

only_one() {
  exec 9<requirements
  flock --nonblock 9 || {
    echo "setup: waiting for another make that is installing into $VENV"
    flock 9
  }
}

# Create an environment that pip can install into, or reuse the existing one.
prepare() {
  local said
  if [[ -e $STAMP ]] && ! runs_this_checkout; then
    discard "$VENV does not run this checkout: $VENV or the checkout was moved, or its Python was removed"
  elif [[ ! -e $STAMP && -e $LOG ]]; then
    discard "an earlier setup was interrupted"
  fi
  said=$({ mkdir -p "$VENV" && rm -f "$STAMP" && touch "$LOG"; } 2>&1) || cannot_write "$said"
  : >"$LOG"
  if [[ ! -e $VENV/bin/python ]]; then
    "$PYTHON" -m venv "$VENV" >>"$LOG" 2>&1 || die "cannot create $VENV: $(tail -n 1 "$LOG")"
  elif ! "$VENV/bin/python" -m pip --version >>"$LOG" 2>&1; then
    rm -f "$LOG" # this script did not create .venv, so the next run must not delete it either
    die "$VENV exists, but this script did not create it, and its pip does not run: rm -rf $VENV, then run make again"
  fi
}

discard() {
  local said
  echo "setup: $1. Creating it again, with the packages in pip's cache"
  said=$(rm -rf "$VENV" 2>&1) || cannot_write "$said"
}

cannot_write() {
  die "cannot write to this checkout ($(head -n 1 <<<"$1")): run make as user $(stat -c %U .), or in your own clone"
}

# Print only the slow steps.
install() {
  "$VENV/bin/python" -m pip --disable-pip-version-check install --progress-bar off "$@" 2>&1 |
    tee -a "$LOG" | sed -u -n -E \
    -e 's/^ *Downloading (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  downloading \2 (\4)/p' \
    -e 's/^ *Using cached (.*\/)?([^-]+-[^-]+)(-.*| *|\.tar\.gz) \(([0-9.]+ [MG]B)\).*/  from cache \2 (\4)/p' \
    -e 's/^ *Building wheel for ([^ ]+) .*: started.*/  building \1/p' \
    -e 's/^ *Installing collected packages: ([^,]*, ){20}.*/  installing all packages/p' \
    -e 's/^ *WARNING: Retrying .*/  no answer from the package index, trying again/p' || failed
}

failed() {
  local error reason
  error=$(grep -m 1 '^ *ERROR: ' "$LOG") || error=$(tail -n 1 "$LOG")
  reason=$(grep '^ *WARNING: Retrying ' "$LOG" | tail -n 1) || reason=
  if [[ $reason && $error == *"find a version"* ]]; then # pip's message if the index did not answer
    reason=$(sed -E "s/.*connection broken by '(.*)': [^']*/\1/; s/.*: //; s/[]')\"]+$//" <<<"$reason")
    error="cannot reach the package index ($reason): check the network, the proxy and 'pip config list'"
  elif [[ $error == *"ERROR: Exception:"* ]]; then
    error=$(tail -n 1 "$LOG")
  fi
  die "$error. The output of pip is in $LOG"
}

# The engine is optional, so a failed build does not fail the setup.
build_engine() {
  if [[ -x engine/build.sh ]]; then exec engine/build.sh; fi
}

if is_complete; then
  build_engine
  exit 0
fi
check_python
if [[ ${1-} == --for-jars ]]; then check_tools "${@:2}"; fi
trap 'echo "setup: interrupted. The next make setup starts over, with the downloads in pip'\''s cache" >&2; exit 130' INT TERM
only_one
if is_complete; then # the other make has completed it
  build_engine
  exit 0
fi
prepare
echo "setup: installing $(grep -c '==' requirements/dev.lock) locked packages into $VENV (the first time about 660 MB to download, 450 MB of it Spark)"
# No build isolation: the build tools are locked, too (requirements/build.lock).
install --require-hashes -r requirements/build.lock
install --require-hashes --no-build-isolation -r requirements/dev.lock
install --no-deps --no-build-isolation -e .
# A relative path: Python reads this file in the encoding of the locale. In the C locale it fails on a path with an umlaut.
for link in "$VENV"/lib/python*/site-packages/*snapreplay.pth; do echo ../../../.. >"$link"; done
touch "$STAMP"
echo "setup: done, $(du -sm "$VENV" | cut -f1) MB in $VENV"
build_engine
