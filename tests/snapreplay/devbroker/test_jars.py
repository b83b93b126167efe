"""Finding and fetching the broker's jars: by the real Maven, into directories of the test; whole or not at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay.devbroker import jars
from snapreplay.devbroker.files import LocalBrokerUnavailable, ToolsMissing
from snapreplay.devbroker.jars import fill, run_tool
from tests.support.deadlines import scaled

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the jars, named by the environment; with what Java reads only with an option."""
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


def test_another_version_has_a_place_of_its_own(root: Path) -> None:
    """Beside the usual one, filled for a pom.xml that differs in the version alone."""
    assert jars.cache_dir("3.9.1") == root.with_name("kafka-3.9.1")
    assert jars.cache_dir(jars.kafka_version()) == jars.cache_dir() == root
    ours, other = jars.kafka_version().encode(), jars.pom("3.9.1")
    assert other == jars.pom().replace(b"<version>%b<" % ours, b"<version>3.9.1<")
    assert other != jars.pom()


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
    """One line says what is missing, one how to get it or do without."""
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "java").symlink_to(java)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert jars.main([]) == 1
    said, hint = capsys.readouterr().err.splitlines()
    assert "the jars of the local broker" in said
    assert "no mvn command to fetch them" in said
    assert hint.startswith(f"`apt-get install maven`; or set {jars.JARS_DIR_VARIABLE}")
    (tmp_path / "java").unlink()
    assert jars.main([]) == 1
    said, hint = capsys.readouterr().err.splitlines()
    assert said == "the local broker needs Java 17 or newer, but there is no java command"
    assert hint == "`apt-get install default-jre-headless`"
    assert not root.exists()


@pytest.mark.parametrize("java", [True, False])
def test_setup_names_a_missing_tool_before_it_downloads(tmp_path: Path, java: bool) -> None:
    """`make setup` in a checkout without an environment, by the standard library alone."""
    checkout, tools = tmp_path / "checkout", tmp_path / "bin"
    for folder in ("requirements", "snapreplay"):
        shutil.copytree(PROJECT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", checkout)
    tools.mkdir()
    for tool in ("bash", "dirname", "env", "grep", "head", *(["java"] if java else [])):
        (tools / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool}"))
    command = [str(tools / "bash"), "requirements/setup.sh", "--for-jars"]
    environment = {"PATH": str(tools), "PYTHON": str(Path(sys.executable).resolve())}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert ("no mvn command" if java else "no java command") in done.stderr
    assert not (checkout / ".venv").exists()


# --------------------------------------------------------------------- whole or not at all


POM = b"<project/>"


def filler(folder: Path) -> None:
    """Two files, as Maven would leave them."""
    (folder / "lib").mkdir()
    (folder / "lib" / "a.jar").write_bytes(b"12345")
    (folder / "b.jar").write_bytes(b"1")


def test_it_is_filled_once_or_again_for_another_pom(tmp_path) -> None:
    """A broker keeps its class archive beside the jars: that does not matter. A filling that fails leaves nothing."""
    root = tmp_path / "deep" / "jars"

    def failing(folder: Path) -> None:
        filler(folder)
        raise ToolsMissing("no network", "")

    with pytest.raises(ToolsMissing):
        fill(root, POM, failing)
    assert [path.name for path in root.parent.iterdir()] == [".jars.lock"]
    assert fill(root, POM, filler)
    (root / "classes.jsa").write_bytes(b"1")
    assert not fill(root, POM, lambda _: pytest.fail("filled again"))
    assert fill(root, b"<project>new</project>", filler)
    assert sorted(path.name for path in root.parent.iterdir()) == [".jars.lock", "jars"]


@pytest.mark.parametrize("home", ["/var/cache/somebody", None])
def test_the_directory_is_named_or_this_checkouts_or_in_the_users_cache(tmp_path, monkeypatch, home) -> None:
    """Site-packages are not written to, and two versions do not replace each other's jars."""
    monkeypatch.delenv(jars.JARS_DIR_VARIABLE, raising=False)
    assert jars.cache_dir() == Path(__file__).resolve().parents[3] / ".jars/kafka"
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/app")
    if home:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setattr(jars, "__file__", str(tmp_path / "site-packages/snapreplay/devbroker/jars.py"))
    cache = Path(home or "/home/app/.cache") / "snapreplay"
    assert jars.cache_dir() == cache / f"kafka-{jars.kafka_version()}"
    assert jars.cache_dir("3.9.1") == cache / "kafka-3.9.1"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo; echo first; echo '[ERROR] second'; exit 3", "[ERROR] second"),
        ("echo; echo first >&2; echo second; exit 3", "first"),
        ("exit 3", "nothing"),
    ],
)
def test_a_failed_tool_is_quoted(script, said) -> None:
    """Its first error, else its first words, from either output, and the caller's hint."""
    with pytest.raises(ToolsMissing) as caught:
        run_tool(["sh", "-c", script], "It failed", hint="try again", deadline_s=scaled(60))
    assert caught.value.message == f"It failed (exit code 3): {said}"
    assert caught.value.hint.startswith("try again; or ")
