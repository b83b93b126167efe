"""Spark's connector: present, or fetched, or one clear line."""

import sys

from snapreplay.jars import find_java
from snapreplay.snapshots.jobs.jars import JARS_DIR_VARIABLE, ensure, main


def test_a_second_call_fetches_nothing(monkeypatch) -> None:
    """What is here whole is used as it is, even without mvn."""
    before = [(jar, jar.stat().st_mtime_ns) for jar in ensure()]
    monkeypatch.setenv("PATH", "/nowhere")
    assert [(jar, jar.stat().st_mtime_ns) for jar in ensure()] == before


def test_without_mvn_one_line_says_what_to_do(tmp_path, monkeypatch, capsys) -> None:
    """Exit code 1; what is missing, and the package that has it."""
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "jars"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no mvn" in line
    assert "`apt-get install maven`" in line
    assert not (tmp_path / "jars").exists()


def test_a_check_names_what_is_missing(tmp_path, monkeypatch, capsys) -> None:
    """Silent when all is there; else java first, then what fetches the jars; nothing is fetched."""
    monkeypatch.setattr(sys, "argv", ["jars", "--check"])
    assert (main(), capsys.readouterr().err) == (0, "")
    monkeypatch.setenv(JARS_DIR_VARIABLE, str(tmp_path / "jars"))
    (tmp_path / "java").symlink_to(find_java("a test"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main() == 1
    assert "no mvn command to fetch them" in capsys.readouterr().err
    (tmp_path / "java").unlink()
    assert main() == 1
    assert "Spark needs Java 17 or newer, but there is no java command" in capsys.readouterr().err
    assert not (tmp_path / "jars").exists()
