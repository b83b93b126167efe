"""Finding and fetching the broker's jars: by the real Maven, into directories of the test; whole or not at all."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay.devbroker import jars
from snapreplay.devbroker.errors import LocalBrokerUnavailable, ToolsMissing
from snapreplay.devbroker.jars import copy_dependencies, fill, is_whole, run_tool
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


# --------------------------------------------------------------------- whole or not at all


POM = b"<project/>"
# Fills argv[1] when its standard input is closed, and says what it does.
PROCESS = """
import sys
from pathlib import Path
from snapreplay.devbroker.jars import fill

def filler(folder):
    (folder / "half.jar").write_bytes(b"1")
    print("filling", flush=True)
    sys.stdin.readline()

print("asking", flush=True)
print(fill(Path(sys.argv[1]), b"<project/>", filler))
"""


def filler(folder: Path) -> None:
    """Two files, as Maven would leave them."""
    (folder / "lib").mkdir()
    (folder / "lib" / "a.jar").write_bytes(b"12345")
    (folder / "b.jar").write_bytes(b"1")


def a_process(root: Path) -> subprocess.Popen[str]:
    """Another process that fills `root`."""
    command = [sys.executable, "-c", PROCESS, str(root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    """Return what the process says next."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_is_filled_once(tmp_path) -> None:
    """The second call finds it whole. A broker keeps its class archive beside the jars: that does not matter."""
    root = tmp_path / "deep" / "jars"
    assert fill(root, POM, filler)
    (root / "classes.jsa").write_bytes(b"1")
    assert not fill(root, POM, lambda _: pytest.fail("filled again"))


BAD_STAMPS = {"half a stamp": '{"pom": ', "a list": "[1]", "an empty stamp": "{}"}


@pytest.mark.parametrize("damage", ["missing", "shorter", "no stamp", *BAD_STAMPS, "other pom"])
def test_what_is_not_whole_is_filled_again(tmp_path, damage) -> None:
    """A file gone or cut, a stamp unreadable, another pom.xml."""
    root, pom = tmp_path / "cache/jars", POM
    fill(root, POM, filler)
    match damage:
        case "missing":
            (root / "b.jar").unlink()
        case "shorter":
            (root / "lib" / "a.jar").write_bytes(b"1")
        case "no stamp":
            (root / "stamp.json").unlink()
        case "other pom":
            pom = b"<project>new</project>"
        case _:
            (root / "stamp.json").write_text(BAD_STAMPS[damage])
    assert not is_whole(root, pom)
    assert fill(root, pom, filler)
    assert is_whole(root, pom)
    assert sorted(path.name for path in root.parent.iterdir()) == [".jars.lock", "jars"]


def test_a_filling_that_fails_or_is_killed_leaves_nothing_that_looks_whole(tmp_path) -> None:
    """After a SIGKILL in the middle the next one begins again, and sweeps up behind it."""
    root = tmp_path / "cache/jars"

    def failing(folder: Path) -> None:
        filler(folder)
        raise ToolsMissing("no network", "")

    with pytest.raises(ToolsMissing):
        fill(root, POM, failing)
    assert [path.name for path in root.parent.iterdir()] == [".jars.lock"]
    with a_process(root) as victim:
        assert [next_line(victim), next_line(victim)] == ["asking", "filling"]
        victim.send_signal(signal.SIGKILL)
        victim.wait(DEADLINE_S)
    assert not root.exists()
    assert fill(root, POM, filler)
    assert sorted(path.name for path in root.parent.iterdir()) == [".jars.lock", "jars"]
    assert not (root / "half.jar").exists()


def test_two_at_once_are_one(tmp_path) -> None:
    """The second waits for the first, and finds the work done."""
    root = tmp_path / "cache/jars"
    with a_process(root) as first, a_process(root) as second:
        assert [next_line(first), next_line(second)] == ["asking", "asking"]
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.close()
        said = [f"{next_line(process)} {next_line(process)}" for process in (first, second)]
    assert sorted(said) == ["False ", "filling True"]
    assert is_whole(root, POM)


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    """A file where a directory must be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolsMissing, match=r"file/jars cannot|in .*file/jars"):
        fill(tmp_path / "file" / "jars", POM, filler)


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


@pytest.mark.whole
def test_maven_errors_are_one_line_and_one_that_hangs_is_ended(tmp_path, monkeypatch) -> None:
    """A pom.xml that Maven refuses: its own first words, not its whole log."""
    with pytest.raises(ToolsMissing) as caught:
        copy_dependencies(b"<project><nonsense/></project>", tmp_path / "lib")
    assert "could not fetch the jars of the local broker (exit code 1)" in caught.value.message
    assert "\n" not in caught.value.message
    only_mvn(tmp_path / "bin", "exec sleep 600", monkeypatch)
    monkeypatch.setattr(jars, "_FETCH_DEADLINE_S", 0.3)
    with pytest.raises(ToolsMissing, match="the jars of the local broker in 0 s"):
        copy_dependencies(POM, tmp_path / "lib")


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
        run_tool(["sh", "-c", script], "It failed", hint="try again", deadline_s=scaled(DEADLINE_S))
    assert caught.value.message == f"It failed (exit code 3): {said}"
    assert caught.value.hint.startswith("try again; or ")
