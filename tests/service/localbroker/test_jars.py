"""Finding and fetching the broker's jars: by the real Maven, into directories of the test."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snapreplay.service.localbroker import jars
from snapreplay.service.localbroker.errors import LocalBrokerUnavailable

DEADLINE_S = 60.0
COMMAND = [sys.executable, "-m", "snapreplay.service.localbroker.jars"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the jars, named by the environment."""
    place = tmp_path / "cache" / "kafka"
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(place))
    return place


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that was fetched once for this file; tests copy it by hard links."""
    place = tmp_path_factory.mktemp("fetched") / "kafka"
    environment = os.environ | {jars.JARS_DIR_VARIABLE: str(place)}
    subprocess.run(COMMAND, check=True, timeout=DEADLINE_S, env=environment, capture_output=True)
    return place


@pytest.fixture
def whole(fetched: Path, root: Path) -> Path:
    """A copy of what was fetched, to be damaged."""
    root.parent.mkdir(parents=True)
    subprocess.run(["cp", "-al", str(fetched), str(root)], check=True)
    assert jars.is_whole(root)
    return root


def a_jar(root: Path) -> Path:
    """One of the jars."""
    return next((root / "lib").glob("kafka-clients-*.jar"))


def only_mvn(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an mvn before all others on the PATH."""
    directory.mkdir()
    (directory / "mvn").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def beside(root: Path) -> list[str]:
    """The names of what lies in the cache beside the jars' directory, without the lock."""
    return sorted(path.name for path in root.parent.iterdir() if path.suffix != ".lock")


def test_the_command_fetches_once_and_tells_what_and_how_big(root: Path) -> None:
    """The first run says what it fetches and its size; the second fetches nothing."""
    first = subprocess.run(
        COMMAND, check=True, timeout=DEADLINE_S, capture_output=True, text=True
    ).stdout.splitlines()
    assert f"fetching Kafka {jars.kafka_version()} by Maven (about 39 MB, once)" in first[0]
    megabytes = float(first[1].split(" MB")[0].split()[-1])
    assert 35 < megabytes < 43, "the announced size is not true any more"
    assert beside(root) == ["kafka"]
    second = subprocess.run(
        COMMAND, check=True, timeout=DEADLINE_S, capture_output=True, text=True
    ).stdout.splitlines()
    assert second == first[2:] == [f"local broker: Kafka {jars.kafka_version()} is in {root}"]


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file, not the one that it shares its content with."""
    path.unlink()
    path.write_bytes(content)


def test_a_directory_that_is_not_whole_is_recognised(whole: Path) -> None:
    """A missing or shortened jar, half a stamp, or the stamp of another pom.xml: each is seen."""
    stamp, jar = whole / "stamp.json", a_jar(whole)
    good, content = stamp.read_bytes(), jar.read_bytes()
    for bad in (b'{"pom": ', b"[]", b"{}", good.replace(b'"pom": "', b'"pom": "0')):
        rewrite(stamp, bad)
        assert not jars.is_whole(whole), bad[:40]
    rewrite(stamp, good)
    rewrite(jar, content[:-1])
    assert not jars.is_whole(whole)
    rewrite(jar, content)
    assert jars.is_whole(whole)
    jar.unlink()
    assert not jars.is_whole(whole)


def test_a_damaged_directory_is_fetched_again(whole: Path) -> None:
    """What is not whole is replaced, not used."""
    a_jar(whole).unlink()
    said: list[str] = []
    kafka = jars.ensure(said.append)
    assert len(said) == 2
    assert jars.is_whole(kafka.root)
    assert a_jar(whole).stat().st_size > 9_000_000
    assert beside(whole) == ["kafka"]


def test_a_whole_directory_needs_no_maven(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jars fetched elsewhere can be named; nothing is said and nothing is run."""
    only_mvn(tmp_path / "bin", "exit 9", monkeypatch)
    said: list[str] = []
    assert jars.ensure(said.append).root == whole
    assert said == []


def test_a_killed_fetch_leaves_nothing_that_looks_whole(root: Path) -> None:
    """After a SIGKILL in the middle the next fetch begins anew, and removes the remains."""
    victim = subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + DEADLINE_S
    while not list(root.parent.glob(".kafka.new-*/lib/*.jar")):
        assert time.monotonic() < deadline, "it never began"
        assert victim.poll() is None, "it ended too soon"
        time.sleep(0.002)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait(DEADLINE_S)
    assert not root.exists()
    assert beside(root) != []
    jars.ensure(lambda _line: None)
    assert beside(root) == ["kafka"]


def test_two_fetches_at_once_are_one(root: Path) -> None:
    """The second waits for the first, and finds the work done."""
    both = [subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=DEADLINE_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(said).count("fetching") == 1
    assert jars.is_whole(root)


def test_a_failing_maven_is_quoted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error holds what Maven said and how to go on; nothing half is left."""
    only_mvn(tmp_path / "bin", "echo '[ERROR] no route to the repository'; exit 1", monkeypatch)
    with pytest.raises(LocalBrokerUnavailable) as caught:
        jars.ensure(lambda _line: None)
    assert "exit code 1" in caught.value.message
    assert "[ERROR] no route to the repository" in caught.value.message
    assert jars.JARS_DIR_VARIABLE in caught.value.hint
    assert beside(root) == []


def test_a_maven_that_hangs_is_ended(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command waits for ever."""
    only_mvn(tmp_path / "bin", "exec sleep 600", monkeypatch)
    monkeypatch.setattr(jars, "_FETCH_DEADLINE_S", 0.3)
    with pytest.raises(LocalBrokerUnavailable, match="in 0 s"):
        jars.ensure(lambda _line: None)


def test_without_java_the_command_says_so_in_two_lines(root: Path) -> None:
    """No traceback: what is missing, and the ways out."""
    environment = {"PATH": "/nowhere", jars.JARS_DIR_VARIABLE: str(root)}
    done = subprocess.run(
        COMMAND, env=environment, timeout=DEADLINE_S, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    said = done.stderr.splitlines()
    assert len(said) == 2
    assert "there is no java command" in said[0]
    assert "apt-get install openjdk-17-jre-headless maven" in said[1]
    assert not root.exists()


def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong SNAPREPLAY_JARS_DIR is said to be that."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(tmp_path / "file" / "kafka" / "jars"))
    with pytest.raises(LocalBrokerUnavailable, match="cannot be kept") as caught:
        jars.ensure()
    assert jars.JARS_DIR_VARIABLE in caught.value.hint


def test_a_checkout_keeps_its_jars_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make clean` removes them with everything else that was made."""
    monkeypatch.delenv(jars.JARS_DIR_VARIABLE, raising=False)
    assert jars.cache_dir() == Path(__file__).resolve().parents[3] / ".jars" / "kafka"


@pytest.mark.parametrize("cache", ["/var/cache/somebody", None])
def test_an_installed_package_uses_the_cache_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str | None
) -> None:
    """Site-packages are not written to."""
    monkeypatch.delenv(jars.JARS_DIR_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/app")
    if cache:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    installed = tmp_path / "site-packages" / "snapreplay" / "service" / "localbroker" / "jars.py"
    monkeypatch.setattr(jars, "__file__", str(installed))
    expected = Path(cache or "/home/app/.cache") / "snapreplay"
    assert jars.cache_dir() == expected / f"kafka-{jars.kafka_version()}"
