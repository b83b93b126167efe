"""Finding and fetching the broker's jars: by the real Maven, into directories of the test.

That a directory is filled whole or not at all: tests/snapreplay/test_jars.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay.devbroker import jars
from snapreplay.devbroker.errors import LocalBrokerUnavailable
from tests.support.deadlines import scaled

DEADLINE_S = 60.0
COMMAND = [sys.executable, "-m", "snapreplay.devbroker.jars"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the jars, named by the environment; with what Java reads only if it is told how."""
    place = tmp_path / "Größe 東京 dir" / "kafka"
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(place))
    return place


def only_mvn(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an mvn before all others on the PATH."""
    directory.mkdir()
    (directory / "mvn").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def beside(root: Path) -> list[str]:
    """The names of what lies in the cache beside the jars' directory, without the lock."""
    return sorted(path.name for path in root.parent.iterdir() if path.suffix != ".lock")


@pytest.mark.slow
def test_the_command_fetches_once_and_tells_what_and_how_big(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run says what it fetches and its size; the second fetches nothing, without Maven
    and beside a class archive. Umlauts in the path and a locale without them are no obstacle."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # stale: Maven would stop at it
    first = subprocess.run(
        COMMAND, check=True, timeout=scaled(DEADLINE_S), capture_output=True, encoding="utf-8"
    ).stdout.splitlines()
    assert f"fetching Kafka {jars.kafka_version()} with Maven (about 39 MB, only once)" in first[0]
    megabytes = float(first[1].split(" MB")[0].split()[-1])
    assert 35 < megabytes < 43, "the announced size is not true any more"
    assert beside(root) == ["kafka"]
    assert (root / "formatted" / "meta.properties").is_file()
    only_mvn(tmp_path / "bin", "exit 9", monkeypatch)
    jars.ensure(pytest.fail).class_archive.touch()
    second = subprocess.run(
        COMMAND, check=True, timeout=scaled(DEADLINE_S), capture_output=True, encoding="utf-8"
    ).stdout.splitlines()
    assert second == first[2:] == [f"local broker: Kafka {jars.kafka_version()} is in {root}"]


def test_another_version_has_a_place_of_its_own(root: Path) -> None:
    """Beside the usual one, filled for a pom.xml that differs in the version alone."""
    assert jars.cache_dir("3.9.1") == root.with_name("kafka-3.9.1")
    assert jars.cache_dir(jars.kafka_version()) == jars.cache_dir() == root
    ours, other = jars.kafka_version().encode(), jars.pom("3.9.1")
    assert other == jars.pom().replace(b"<version>%b<" % ours, b"<version>3.9.1<")
    assert other != jars.pom()


@pytest.mark.parametrize("given", ["--chekc", "4", "kafka"])
def test_what_is_no_version_is_not_fetched(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped option is none."""
    with pytest.raises(SystemExit) as refused:
        jars.main([given])
    assert refused.value.code == 2
    assert f"{given}" in capsys.readouterr().err


def test_a_failing_storage_tool_is_quoted(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jars without the storage tool: what Java said, in one line; nothing half is left."""
    only_mvn(tmp_path / "bin", "exit 0", monkeypatch)
    with pytest.raises(LocalBrokerUnavailable) as caught:
        jars.ensure(lambda _line: None)
    assert "storage tool could not format a data directory (exit code 1)" in caught.value.message
    assert "kafka.tools.StorageTool" in caught.value.message
    assert "\n" not in caught.value.message
    assert beside(root) == []


def test_what_is_missing_is_named_and_nothing_is_fetched(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Maven, then Java, too: one line says what is missing, one how to get it or do without. With both, a check is
    silent."""
    assert jars.main(["--check"]) == 0
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "java").symlink_to(java)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for words in (["--check"], []):
        assert jars.main(words) == 1
        said, hint = capsys.readouterr().err.splitlines()
        assert "the jars of the local broker" in said
        assert "no mvn command to fetch them" in said
        assert hint.startswith(f"`apt-get install maven`; or set {jars.JARS_DIR_VARIABLE}")
    (tmp_path / "java").unlink()
    assert jars.main(["--check"]) == 1
    said, hint = capsys.readouterr().err.splitlines()
    assert said == "the local broker needs Java 17 or newer, but there is no java command"
    assert hint == "`apt-get install default-jre-headless`; mvn is missing, too: `apt-get install maven`"
    assert not root.exists()
    monkeypatch.delenv(jars.JARS_DIR_VARIABLE)
    (tmp_path / "java").symlink_to(java)
    assert jars.main(["--check"]) == 0, "the checkout has them"
