"""Java is found if it is new enough."""

from pathlib import Path

import pytest

from snapreplay.java import JavaUnavailable, environment, find_java


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH, empty at first; no JAVA_HOME."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def command(path: Path, script: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java_that_says(version: str) -> str:
    """The script of a java that tells this version, on the standard error as the real one does."""
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "it needs Java 17 or newer, but there is no java"),
        (java_that_says("11.0.2"), "java is Java 11"),
        (java_that_says("1.8.0_402"), "java is Java 8"),
        (java_that_says("16"), "java is Java 16"),
        ("exit 3", "java -version` prints no version"),
        ("echo no", "java -version` prints no version"),
        ("\x00\x01", "does not run"),
    ],
    ids=["none", "11", "8", "16", "fails", "says something else", "no program"],
)
def test_a_java_that_will_not_do_is_refused(bin_dir: Path, script: str | None, says: str) -> None:
    """What was found, and the package to install: no failing broker tells it first."""
    if script is not None:
        command(bin_dir / "java", script)
        if script.startswith("\x00"):
            (bin_dir / "java").write_bytes(b"\x00\x01")
    with pytest.raises(JavaUnavailable, match=says) as refused:
        find_java("it")
    assert "`apt-get install" in refused.value.hint


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
@pytest.mark.parametrize("home", ["jdk", "gone", None])
def test_java_17_and_newer_is_accepted(bin_dir: Path, monkeypatch: pytest.MonkeyPatch, version: str, home) -> None:
    """That of JAVA_HOME wins; a stale JAVA_HOME hides nothing, and is not handed on: Maven and Spark would stop at
    it."""
    found = command(bin_dir / "java", java_that_says("11" if home == "jdk" else version))
    if home == "jdk":
        found = command(bin_dir / "jdk/bin/java", java_that_says(version))
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(bin_dir / home))
    assert find_java("it") == found
    assert ("JAVA_HOME" in environment()) is (home == "jdk")
