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
    """The second call finds it whole and does nothing."""
    root = tmp_path / "deep" / "jars"
    assert fill(root, POM, filler)
    assert (root / "lib" / "a.jar").read_bytes() == b"12345"
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
    assert (root / "b.jar").read_bytes() == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".jars.lock", "jars"]


def test_what_is_added_later_does_not_matter(tmp_path) -> None:
    """A broker keeps its class archive beside the jars, and replaces it."""
    root = tmp_path / "jars"
    fill(root, POM, filler)
    (root / "classes.jsa").write_bytes(b"1")
    assert is_whole(root, POM)


def test_a_failed_filling_leaves_nothing(tmp_path) -> None:
    """Neither a directory that looks whole nor a half one beside it."""
    root = tmp_path / "jars"

    def failing(folder: Path) -> None:
        filler(folder)
        raise JarsUnavailable("no network")

    with pytest.raises(JarsUnavailable):
        fill(root, POM, failing)
    assert not root.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".jars.lock"]


def test_a_killed_filling_leaves_nothing_that_looks_whole(tmp_path) -> None:
    """After a SIGKILL in the middle the next one begins anew, and sweeps up behind it."""
    root = tmp_path / "jars"
    with a_process(root) as victim:
        assert [next_line(victim), next_line(victim)] == ["asking", "filling"]
        victim.send_signal(signal.SIGKILL)
        victim.wait(DEADLINE_S)
    assert not root.exists()
    assert list(tmp_path.glob(".jars.new/*/half.jar")) != []
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


def test_the_directory_may_be_named(tmp_path, monkeypatch) -> None:
    """By the variable; else it is in this checkout, where `make clean` removes it."""
    monkeypatch.setenv("SOME_JARS", str(tmp_path))
    assert jars_dir("spark", "SOME_JARS") == tmp_path
    monkeypatch.delenv("SOME_JARS")
    checkout = Path(__file__).resolve().parents[2]
    assert jars_dir("spark", "SOME_JARS") == checkout / ".jars" / "spark"


@pytest.mark.parametrize("home", ["/var/cache/somebody", None])
@pytest.mark.parametrize(("version", "name"), [("", "spark"), ("4.2", "spark-4.2")])
def test_an_installed_package_uses_the_cache_of_the_user(tmp_path, monkeypatch, home, version, name) -> None:
    """Site-packages are not written to."""
    monkeypatch.delenv("SOME_JARS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/app")
    if home:
        monkeypatch.setenv("XDG_CACHE_HOME", home)
    installed = tmp_path / "site-packages" / "snapreplay" / "jars.py"
    monkeypatch.setattr(jars, "__file__", str(installed))
    expected = Path(home or "/home/app/.cache") / "snapreplay" / name
    assert jars_dir("spark", "SOME_JARS", version) == expected


def test_maven_errors_are_one_line(tmp_path) -> None:
    """A pom.xml that Maven refuses: its own first words, not its whole log."""
    with pytest.raises(JarsUnavailable) as caught:
        copy_dependencies(b"<project><nonsense/></project>", tmp_path / "lib", "a test")
    assert "could not fetch the jars of a test (exit code 1)" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_maven_that_hangs_is_ended(tmp_path, monkeypatch) -> None:
    """No command waits for ever."""
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\nexec sleep 600\n")
    maven.chmod(0o755)
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


def test_without_java_the_error_names_the_package(bin_dir: Path) -> None:
    """What is missing, for what, and how to get it."""
    with pytest.raises(JavaUnavailable, match="it needs Java 17 or newer, but there is no java") as no:
        find_java("it")
    assert no.value.hint == "`apt-get install default-jre-headless`"


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


def test_a_java_home_without_java_is_passed_over(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale JAVA_HOME does not hide the java on the PATH."""
    found = command(bin_dir / "java", java_that_says("17"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "gone"))
    assert find_java("it") == found


@pytest.mark.parametrize("script", ["exit 3", "echo no"])
def test_a_java_that_tells_no_version_is_refused(bin_dir: Path, script: str) -> None:
    """A broken java is named; it is not found out by a failing broker."""
    found = command(bin_dir / "java", script)
    with pytest.raises(JavaUnavailable, match=f"{found} -version` prints no version"):
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
    code = "from snapreplay.jars import environment as e; print(e()['LC_ALL'])"
    here = {**os.environ, "LC_ALL": locale}
    told = subprocess.run([sys.executable, "-c", code], env=here, capture_output=True, text=True, check=True)
    assert told.stdout == "C.UTF-8\n"
    assert environment().keys() >= os.environ.keys()


def test_a_stale_java_home_is_not_handed_on(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`find_java` passes it over; Maven and Spark would stop at it."""
    command(bin_dir / "jdk" / "bin" / "java", java_that_says("21"))
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "jdk"))
    assert environment()["JAVA_HOME"] == str(bin_dir / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "gone"))
    assert "JAVA_HOME" not in environment()
