"""Finding java, saying what to install when it is missing, and the environment of a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay.jars.java import JavaUnavailable, environment, find_java


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


def test_without_java_the_error_names_the_package(bin_dir: Path) -> None:
    """What is missing, for what, and how to get it."""
    with pytest.raises(
        JavaUnavailable, match="It needs Java 17 or newer, and there is no java"
    ) as no:
        find_java("it")
    assert no.value.hint == "apt-get install default-jre-headless"


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_402", 8), ("16", 16)])
def test_an_older_java_is_refused_by_its_number(bin_dir: Path, version: str, major: int) -> None:
    """Java below 17 cannot load the broker's classes, and the error says which one was found."""
    found = command(bin_dir / "java", java_that_says(version))
    with pytest.raises(JavaUnavailable, match=f"{found} is Java {major}") as old:
        find_java("it")
    assert "openjdk-17-jre-headless" in old.value.hint


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_newer_is_accepted(bin_dir: Path, version: str) -> None:
    """17 is enough, and so is what comes after."""
    found = command(bin_dir / "java", java_that_says(version))
    assert find_java("it") == found


def test_java_home_wins_over_the_path(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with every Java program."""
    command(bin_dir / "java", java_that_says("11"))
    chosen = command(bin_dir / "jdk" / "bin" / "java", java_that_says("21"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "jdk"))
    assert find_java("it") == chosen


def test_a_java_home_without_java_is_passed_over(
    bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale JAVA_HOME does not hide the java on the PATH."""
    found = command(bin_dir / "java", java_that_says("17"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "gone"))
    assert find_java("it") == found


@pytest.mark.parametrize("script", ["exit 3", "echo no"])
def test_a_java_that_tells_no_version_is_refused(bin_dir: Path, script: str) -> None:
    """A broken java is named; it is not found out by a failing broker."""
    found = command(bin_dir / "java", script)
    with pytest.raises(JavaUnavailable, match=f"{found} -version tells no version"):
        find_java("it")


def test_a_java_that_cannot_be_run_is_refused(bin_dir: Path) -> None:
    """A file of that name that is no program gives the same kind of error."""
    (bin_dir / "java").write_bytes(b"\x00\x01")
    (bin_dir / "java").chmod(0o755)
    with pytest.raises(JavaUnavailable, match="does not run"):
        find_java("it")


@pytest.mark.parametrize("locale", ["C", "de_DE.not-installed", "C.UTF-8"])
def test_a_jvm_names_files_as_this_python_does(locale: str) -> None:
    """As UTF-8, also where the locale is the plain one or not installed: there Java finds no umlaut."""
    code = "from snapreplay.jars.java import environment as e; print(e()['LC_ALL'])"
    here = {**os.environ, "LC_ALL": locale}
    told = subprocess.run(
        [sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True
    )
    assert told.stdout == "C.UTF-8\n"
    assert environment().keys() >= os.environ.keys()


def test_a_stale_java_home_is_not_handed_on(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`find_java` passes it over; Maven and Spark would stop at it."""
    command(bin_dir / "jdk" / "bin" / "java", java_that_says("21"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "jdk"))
    assert environment()["JAVA_HOME"] == str(bin_dir / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "gone"))
    assert "JAVA_HOME" not in environment()
