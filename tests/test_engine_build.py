"""`engine/build.sh`, with a cargo made here: no network, and nothing is compiled."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from snapreplay import engine

ROOT = Path(__file__).resolve().parents[1]
# An empty module, as a library: what cargo would have made of the sources.
BUILDS = "mkdir -p target/release && cp '{library}' target/release/libsnapreplay_engine.so"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources of the engine, and an environment of its own, in a folder with a space."""
    place = tmp_path / "a checkout"
    shutil.copytree(ROOT / "engine", place / "engine", ignore=shutil.ignore_patterns("target"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / ".venv"], check=True)
    (tmp_path / "bin").mkdir()
    for name in ("bash", "cat", "cksum", "cp", "dirname", "env", "grep", "mkdir", "rm", "tail"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    return place


def cargo(checkout: Path, does: str) -> None:
    """Put a cargo on the path that does this."""
    script = checkout.parent / "bin" / "cargo"
    script.write_text(f"#!/bin/bash\n{does}\n")
    script.chmod(0o755)


def build(checkout: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the script."""
    path = str(checkout.parent / "bin")
    done = subprocess.run(
        [checkout / "engine" / "build.sh", *options], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_without_cargo_it_says_so_once(checkout: Path) -> None:
    """And looks again each time; who asks for it gets an error."""
    code, said = build(checkout)
    assert code == 0
    assert said.startswith("setup: cargo is not installed, so the compiled engine is not built")
    assert build(checkout) == (0, "")
    assert build(checkout, "--now")[0] == 1
    cargo(checkout, "exit 1")
    assert "building the compiled engine with cargo" in build(checkout)[1]


@pytest.mark.skipif(engine.chosen("auto")[0] is None, reason="there is no library to take")
def test_what_is_built_is_loaded_and_not_built_again(checkout: Path) -> None:
    """Changed sources are; a file that is no library is refused."""
    cargo(checkout, BUILDS.format(library=engine.chosen("auto")[0].__file__))  # type: ignore[union-attr]
    assert build(checkout)[1].endswith("setup: the compiled engine is built\n")
    python = checkout / ".venv/bin/python"
    subprocess.run([python, "-I", "-c", "import snapreplay_engine"], check=True)
    assert build(checkout) == (0, "")
    with (checkout / "engine/src/lib.rs").open("a") as source:
        source.write("//\n")
    cargo(checkout, BUILDS.format(library=os.devnull))
    assert "the compiled engine is not built: ImportError" in build(checkout)[1]


def test_a_library_that_is_broken_is_not_called_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there and cannot be loaded is named."""
    (tmp_path / f"snapreplay_engine{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "snapreplay_engine", raising=False)
    found, why = engine.chosen("auto")
    assert found is None
    assert why.startswith("it cannot be loaded")
