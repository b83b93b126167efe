"""Finding java, and saying what to install when it is missing."""

from pathlib import Path

import pytest

from snapreplay.service.localbroker.errors import LocalBrokerUnavailable
from snapreplay.service.localbroker.tools import find_java


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


def test_without_java_the_error_names_the_package_and_the_alternatives(bin_dir: Path) -> None:
    """One line says what is missing, one how to get it or do without."""
    with pytest.raises(LocalBrokerUnavailable) as caught:
        find_java()
    assert "no java command" in caught.value.message
    assert "apt-get install openjdk-17-jre-headless maven" in caught.value.hint
    assert "--bootstrap-servers" in caught.value.hint
    assert "deploy/compose.yaml" in caught.value.hint


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_402", 8), ("16", 16)])
def test_an_older_java_is_refused_by_its_number(bin_dir: Path, version: str, major: int) -> None:
    """Java below 17 cannot load the broker's classes, and the error says which one was found."""
    found = command(bin_dir / "java", java_that_says(version))
    with pytest.raises(LocalBrokerUnavailable, match=f"{found} is Java {major}"):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_java_17_and_newer_is_accepted(bin_dir: Path, version: str) -> None:
    """17 is enough, and so is what comes after."""
    found = command(bin_dir / "java", java_that_says(version))
    assert find_java() == found


def test_java_home_wins_over_the_path(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with every Java program."""
    command(bin_dir / "java", java_that_says("11"))
    chosen = command(bin_dir / "jdk" / "bin" / "java", java_that_says("21"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "jdk"))
    assert find_java() == chosen


def test_a_java_home_without_java_is_passed_over(
    bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale JAVA_HOME does not hide the java on the PATH."""
    found = command(bin_dir / "java", java_that_says("17"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "gone"))
    assert find_java() == found


@pytest.mark.parametrize("script", ["exit 3", "echo no"])
def test_a_java_that_tells_no_version_is_refused(bin_dir: Path, script: str) -> None:
    """A broken java is named; it is not found out by a failing broker."""
    found = command(bin_dir / "java", script)
    with pytest.raises(LocalBrokerUnavailable, match=f"{found} -version tells no version"):
        find_java()


def test_a_java_that_cannot_be_run_is_refused(bin_dir: Path) -> None:
    """A file of that name that is no program gives the same kind of error."""
    (bin_dir / "java").write_bytes(b"\x00\x01")
    (bin_dir / "java").chmod(0o755)
    with pytest.raises(LocalBrokerUnavailable, match="does not run"):
        find_java()
