"""Java is found if it is new enough; a directory of jars is filled once, whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from snapreplay import jars
from snapreplay.jars import (
    JarsUnavailable,
    JavaUnavailable,
    copy_dependencies,
    environment,
    fill,
    find_java,
    is_whole,
    jars_dir,
    run_tool,
)
from tests.support.deadlines import scaled

POM = b"<project/>"
DEADLINE_S = 60.0
# Fills argv[1] when its standard input is closed, and says what it does.
PROCESS = """
import sys
from pathlib import Path
from snapreplay.jars import fill

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
    root, pom = tmp_path / "jars", POM
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".jars.lock", "jars"]


def test_a_filling_that_fails_or_is_killed_leaves_nothing_that_looks_whole(tmp_path) -> None:
    """After a SIGKILL in the middle the next one begins again, and sweeps up behind it."""
    root = tmp_path / "jars"

    def failing(folder: Path) -> None:
        filler(folder)
        raise JarsUnavailable("no network")

    with pytest.raises(JarsUnavailable):
        fill(root, POM, failing)
    assert [path.name for path in tmp_path.iterdir()] == [".jars.lock"]
    with a_process(root) as victim:
        assert [next_line(victim), next_line(victim)] == ["asking", "filling"]
        victim.send_signal(signal.SIGKILL)
        victim.wait(DEADLINE_S)
    assert not root.exists()
    assert fill(root, POM, filler)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".jars.lock", "jars"]
    assert not (root / "half.jar").exists()


def test_two_at_once_are_one(tmp_path) -> None:
    """The second waits for the first, and finds the work done."""
    root = tmp_path / "jars"
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
    with pytest.raises(JarsUnavailable, match=r"file/jars cannot|in .*file/jars"):
        fill(tmp_path / "file" / "jars", POM, filler)


@pytest.mark.parametrize("home", ["/var/cache/somebody", None])
@pytest.mark.parametrize(("version", "name"), [("", "kafka"), ("4.2", "kafka-4.2")])
def test_the_directory_is_named_or_this_checkouts_or_in_the_users_cache(
    tmp_path, monkeypatch, home, version, name
) -> None:
    """Site-packages are not written to, and two versions do not replace each other's jars."""
    monkeypatch.setenv("SOME_JARS", str(tmp_path))
    assert jars_dir("kafka", "SOME_JARS") == tmp_path
    monkeypatch.delenv("SOME_JARS")
    assert jars_dir("kafka", "SOME_JARS") == Path(__file__).resolve().parents[2] / ".jars/kafka"
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/app")
    if home:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setattr(jars, "__file__", str(tmp_path / "site-packages" / "snapreplay" / "jars.py"))
    expected = Path(home or "/home/app/.cache") / "snapreplay" / name
    assert jars_dir("kafka", "SOME_JARS", version) == expected


def test_maven_errors_are_one_line_and_one_that_hangs_is_ended(tmp_path, monkeypatch) -> None:
    """A pom.xml that Maven refuses: its own first words, not its whole log."""
    with pytest.raises(JarsUnavailable) as caught:
        copy_dependencies(b"<project><nonsense/></project>", tmp_path / "lib", "a test")
    assert "could not fetch the jars of a test (exit code 1)" in caught.value.message
    assert "\n" not in caught.value.message
    command(tmp_path / "mvn", "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(jars, "_FETCH_DEADLINE_S", 0.3)
    with pytest.raises(JarsUnavailable, match="the jars of a test in 0 s"):
        copy_dependencies(POM, tmp_path / "lib", "a test")


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
    with pytest.raises(JarsUnavailable) as caught:
        run_tool(["sh", "-c", script], "It failed", hint="try again", deadline_s=scaled(DEADLINE_S))
    assert caught.value.message == f"It failed (exit code 3): {said}"
    assert caught.value.hint == "try again"


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


@pytest.mark.parametrize("locale", ["C", "de_DE.not-installed", "C.UTF-8"])
def test_a_jvm_names_files_as_this_python_does(locale: str) -> None:
    """As UTF-8, also where the locale is the plain one or not installed: there Java finds no umlaut."""
    code = "from snapreplay.jars import environment as e; print(e()['LC_ALL'])"
    here = {**os.environ, "LC_ALL": locale}
    told = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True)
    assert told.stdout == "C.UTF-8\n"
    assert environment().keys() >= os.environ.keys()
