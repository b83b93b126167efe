"""`make setup`, with the real Makefile and script, in a small checkout with packages made here: no network."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.deadlines import scaled

pytestmark = pytest.mark.timeout(400)  # a set-up takes long on a busy machine
ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = scaled(100.0)

# What builds the small checkout, and makes the wheels here.
BACKEND = """
import os, zipfile

def write_wheel(folder, name, files, entry_points=""):
    info = f"{name}-1.0.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    if entry_points:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\\n{entry_points}\\n"
    files[f"{info}/RECORD"] = "".join(f"{each},,\\n" for each in [*files, f"{info}/RECORD"])
    wheel = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)
    return wheel

def build_editable(folder, config_settings=None, metadata_directory=None):
    return write_wheel(folder, "snapreplay", {"snapreplay.pth": os.getcwd()}, "snapreplay = snapreplay.api.cli:main")
"""
# A Python that finds this on its path stands still where it is told to, until a signal ends it.
STANDS_STILL = """
import os, pathlib, signal, sys

event, word = os.environ["STANDS_STILL"].split()

def look(name, arguments):
    if name == event and word in repr(arguments[:2]):  # behind them is the environment, which has the word
        pathlib.Path(__file__).with_name("reached").touch()
        signal.pause()

sys.addaudithook(look)
"""
PYPROJECT = """
[build-system]
requires = ["small-backend"]
build-backend = "small_backend"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that `make setup` reads, in a folder with a space and an umlaut; the packages stay where they are."""
    place, wheels = tmp_path / "Größe 東京 dir", tmp_path / "wheels"
    wheels.mkdir()
    (place / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", place)
    shutil.copy(ROOT / "requirements" / "setup.sh", place / "requirements")
    shutil.copytree(ROOT / "snapreplay", place / "snapreplay", symlinks=True)
    for folder in ("api", "service", "snapshots"):
        (place / folder).symlink_to(ROOT / folder)
    (place / "pyproject.toml").write_text(PYPROJECT)
    made: dict[str, Callable[..., str]] = {}
    exec(BACKEND, made)  # noqa: S102 - our own text, which pip runs too
    backend = made["write_wheel"](str(wheels), "small_backend", {"small_backend.py": BACKEND})
    modules = {"many/__init__.py": "def main():\n    print('whole')\n"}
    many = made["write_wheel"](str(wheels), "many", modules, "many = many:main")
    lock(place / "requirements" / "build.lock", "small-backend", wheels / backend)
    lock(place / "requirements" / "dev.lock", "many", wheels / many)
    return place


def lock(path: Path, name: str, wheel: Path) -> None:
    """Write a lock file with one package and its hash."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(f"{name}==1.0 \\\n    --hash=sha256:{digest}\n")


def start(checkout: Path, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """`make` as a group of processes, which Ctrl-C in a terminal would reach as a whole; no child of `make test`."""
    outside = {name: each for name, each in os.environ.items() if not name.startswith("MAKE")}
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": str(checkout.parent / "wheels")}
    return subprocess.Popen(
        ["make", "--no-print-directory", *words, f"PYTHON={sys.executable}"],
        cwd=checkout,
        env={**outside, **pip, "PIP_NO_INDEX": "1", "LC_ALL": "C", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def make(checkout: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `make`, the latter without make's own last line."""
    done = start(checkout, *words, **environment)
    out, errors = done.communicate(timeout=DEADLINE_S)
    lines = [line for line in errors.splitlines() if not line.startswith("make: ***")]
    return done.returncode, out, "\n".join(lines)


def broken_off(checkout: Path, event: str, word: str) -> str:
    """Return what `make setup` says when its whole group gets SIGINT. A Python of it stands still then, directly
    before the audited `event` with `word` in its arguments."""
    folder = Path(tempfile.mkdtemp(dir=checkout.parent))
    (folder / "sitecustomize.py").write_text(STANDS_STILL)
    victim = start(checkout, "setup", PYTHONPATH=str(folder), STANDS_STILL=f"{event} {word}")
    deadline = time.monotonic() + DEADLINE_S
    while not (folder / "reached").exists():
        assert victim.poll() is None, victim.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)  # between two looks, bounded by the deadline
    os.killpg(victim.pid, signal.SIGINT)
    out, errors = victim.communicate(timeout=DEADLINE_S)
    assert victim.returncode != 0, out
    return errors


def packages(checkout: Path) -> Path:
    """Say where pip puts packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return checkout / ".venv" / "lib" / version / "site-packages"


@pytest.mark.whole
def test_broken_off_anywhere_it_repairs_itself(checkout: Path) -> None:
    """A venv without pip, and a package without its command, are made anew; then there is nothing to do."""
    venv, many = checkout / ".venv", packages(checkout) / "many-1.0.dist-info"
    said = broken_off(checkout, "subprocess.Popen", "ensurepip")
    assert "setup: interrupted. The next make setup begins anew" in said
    assert (venv / "bin" / "python").exists()
    assert not (packages(checkout) / "pip" / "__main__.py").exists()
    # Here pip takes the package for installed, and would never make its command.
    broken_off(checkout, "open", ".venv/bin/many'")
    assert (many / "METADATA").exists()
    assert not (venv / "bin" / "many").exists()
    code, out, errors = make(checkout, "setup")
    assert (code, errors) == (0, ""), out
    assert out.startswith("setup: an earlier run did not come to its end. It is made anew")
    command = subprocess.run([venv / "bin" / "many"], capture_output=True, text=True, check=True)
    assert command.stdout == "whole\n"
    assert make(checkout, "setup") == (0, "", "")


@pytest.mark.whole
def test_without_network_one_line_says_so(checkout: Path) -> None:
    """Nobody listens at the index: the client's reason, not that a version could not be found."""
    nobody = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_RETRIES": "1"}
    code, out, errors = make(checkout, "setup", PIP_INDEX_URL="http://127.0.0.1:9/", **nobody)
    assert code == 2
    assert "the package index does not answer: trying again" in out
    assert errors.startswith(
        "setup: the package index cannot be reached ([Errno 111] Connection refused): check the network"
    )
    assert len(errors.splitlines()) == 1


def test_a_python_that_cannot_do_it_is_named(checkout: Path) -> None:
    """Missing, a shim that does not run, too old, without venv: one true line each, and nothing is made."""
    python = checkout.parent / "python3.99"
    shim = "echo 'pyenv: python3.99: command not found' >&2; exit 127"
    old = 'case "$2" in *exit*) exit 1;; *) echo 3.9;; esac'
    bare = f'case "$2" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac'
    for script, said in (
        ("", f"there is no command {python}: make setup PYTHON=python3"),
        (shim, f"{python} does not run (pyenv: python3.99: command not found): activate that version, or"),
        (old, f"Python 3.11 or newer is needed, {python} is 3.9: make setup PYTHON="),
        (bare, f"{python} has no module venv or ensurepip: apt-get install python3."),
    ):
        if script:
            python.write_text(f"#!/bin/sh\n{script}\n")
            python.chmod(0o755)
        script_run = subprocess.run(
            ["requirements/setup.sh"],
            cwd=checkout,
            env={**os.environ, "PYTHON": str(python)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert script_run.returncode == 1
        assert script_run.stderr.startswith(f"setup: {said}")
        assert len(script_run.stderr.splitlines()) == 1
        assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("target", "missing", "named"),
    [
        ("test", "java", "there is no java command\n*apt-get install default-jre-headless*"),
        ("demo", "mvn", "there is no mvn command*apt-get install maven*"),
        ("whole", "mvn", "(Kafka 3.9.1) have not been fetched yet, and there is no mvn command*"),
    ],
)
def test_java_and_maven_are_missed_before_anything_is_downloaded(
    checkout: Path, target: str, missing: str, named: str
) -> None:
    """`make` names the package first, whatever its target; there is not even a venv. Maven is missed also for the
    older broker of `whole` alone, when all other jars are there."""
    commands = checkout.parent / "bin"
    commands.mkdir()
    for path in (Path(shutil.which("java") or ""), *Path("/usr/bin").iterdir()):
        if path.name not in {missing, "mvn"} and not (commands / path.name).exists():
            (commands / path.name).symlink_to(path)
    only_older = named.startswith("(Kafka")
    if only_older:
        (checkout.parent / "kafka").symlink_to((ROOT / ".jars/kafka").resolve())
    places = {"SNAPREPLAY_JARS_DIR": str(checkout.parent / "kafka")}
    code, out, errors = make(checkout, target, PATH=str(commands), JAVA_HOME="", **places)
    assert (code, out) == (2, "")
    assert fnmatch(errors, f"*{named}"), errors
    assert not (checkout / ".venv").exists()


def test_a_demo_without_broker_and_spark_asks_for_no_java(checkout: Path) -> None:
    """With --bootstrap-servers and --skip-audit the target needs `setup` alone."""
    given = "--bootstrap-servers=k:9092 --skip-audit"
    for arguments, needed in (("", True), ("--skip-audit", True), (given, False)):
        _, out, _ = make(checkout, "--dry-run", "demo", f"ARGS={arguments}")
        assert ("--for-jars" in out) is needed, out


def test_a_target_that_does_not_exist_is_named(checkout: Path) -> None:
    """With where to look."""
    code, _, errors = make(checkout, "nosuch")
    assert (code, errors) == (2, "make: there is no target 'nosuch'; make alone lists them")
