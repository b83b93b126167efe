"""Hints about what a machine has: jars, Java, Maven, directories, certificates: what they name is done."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from snapreplay.devbroker import jars
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.errors import LocalBrokerFailed, LocalBrokerUnavailable
from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.config import client_arguments


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory where commands are found, with Java alone; jars are nowhere."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(tmp_path / "nowhere"))
    install(commands, "java")
    monkeypatch.setenv("PATH", str(commands))
    return commands


def install(commands: Path, name: str) -> None:
    """Install as apt-get would do."""
    found = shutil.which(name)
    assert found is not None
    (commands / name).symlink_to(found)


def test_without_maven_the_package_is_installed_or_the_jars_are_named(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways of the hint: nothing is missing any more."""
    maven = shutil.which("mvn", path="/usr/bin:/usr/local/bin")
    with monkeypatch.context() as usual:
        usual.delenv(jars.JARS_DIR_VARIABLE)
        filled = jars.cache_dir()
    with pytest.raises(LocalBrokerUnavailable) as refused:
        jars.ensure(pytest.fail)
    assert refused.value.hint.startswith("`apt-get install maven`; or ")
    (variable,) = re.findall(r"; or set (\w+) to a directory that was filled elsewhere", refused.value.hint)
    assert maven is not None
    (bare / "mvn").symlink_to(maven)
    jars.check()
    (bare / "mvn").unlink()
    monkeypatch.setenv(variable, str(filled))
    assert jars.ensure(pytest.fail).root == filled


def test_java_and_maven_are_installed_as_one_hint_says(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--check` names both at once; then it is silent."""
    java = (bare / "java").readlink()
    (bare / "java").unlink()
    with pytest.raises(LocalBrokerUnavailable) as refused:
        jars.check()
    assert re.findall(r"apt-get install ([a-z-]+)", refused.value.hint) == ["default-jre-headless", "maven"]
    (bare / "java").symlink_to(java)
    (bare / "mvn").symlink_to("/bin/true")
    jars.check()


def test_the_log_of_a_broker_that_failed_is_where_the_hint_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of it, and what is quoted is in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LocalBrokerFailed) as refused:
        LocalBroker(heap_mb=1).start()
    named = re.match(r"read its log, (.+)\. It ends with:\n(.+)", refused.value.hint, re.DOTALL)
    assert named is not None
    log = Path(named[1]).read_text()
    assert all(line in log for line in named[2].splitlines())
    assert "Too small maximum heap" in log


def test_a_directory_that_can_be_written_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a broker's data, and for the jars: another one is named."""
    taken = tmp_path / "file"
    taken.touch()
    kafka = jars.ensure()
    with pytest.raises(LocalBrokerUnavailable) as refused:
        kafka.format(taken, 1, "CLUSTER")
    assert refused.value.hint == "name a directory that this user may write to"
    kafka.format(tmp_path / "data", 1, "CLUSTER")
    assert (tmp_path / "data" / "meta.properties").exists()
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(taken / "jars"))
    with pytest.raises(LocalBrokerUnavailable) as refused:
        jars.ensure(pytest.fail)
    assert "make that directory writable; or set SNAPREPLAY_JARS_DIR" in refused.value.hint
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(kafka.root))
    jars.ensure(pytest.fail)


def test_certificate_and_key_are_of_one_pair_and_an_encrypted_key_has_its_password(tmp_path: Path) -> None:
    """Both conditions of the hint: with them the files are loaded."""
    for name in ("one", "two"):
        made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -passout pass:secret -subj /CN={name} -days 2"
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(["openssl", *made.split(), *files], cwd=tmp_path, check=True, capture_output=True)

    def load(key: str, *password: str) -> None:
        files = {"ssl.certfile": str(tmp_path / "one.pem"), "ssl.keyfile": str(tmp_path / f"{key}.key")}
        given = dict(zip(["ssl.password"], password, strict=False))
        client_arguments(Settings(kafka={"security.protocol": "SSL", **files, **given}))

    for wrong in (["one"], ["two", "secret"]):
        with pytest.raises(UsageError) as refused:
            load(*wrong)
        assert "certificate and key of one pair" in refused.value.hint
        assert "an encrypted key needs kafka.ssl.password" in refused.value.hint
    load("one", "secret")


SESSION = """
from snapreplay.errors import UsageError
from snapreplay.snapshots.jobs.session import local_session
try:
    local_session("hint", short_lived=True).stop()
except UsageError as error:
    print(error.hint)
"""
NOT_WHOLE = """#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "17.0.1"' >&2
"""


KEPT = """
from snapreplay.devbroker.errors import LocalBrokerUnavailable
from snapreplay.devbroker.files import KafkaFiles
from snapreplay.devbroker.node import LocalNode
from snapreplay.devbroker.properties import Node
try:
    LocalNode(KafkaFiles("java", "not started here"), Node(1, 2, 3), 256).close()
except LocalBrokerUnavailable as error:
    print(error.hint)
"""
# No limit of processes counts for root: here its real user is another one, without the two capabilities that lift it.
A_USER = ["setpriv", "--ruid", "65534", "--bounding-set=-sys_resource,-sys_admin"]


def test_a_limit_of_processes_is_raised(tmp_path: Path) -> None:
    """The printed command shows the limit that is reached; with a higher one the process is kept."""
    script = tmp_path / "kept.py"
    script.write_text(KEPT)

    def typed(command: str) -> str:
        as_user = A_USER if os.getuid() == 0 else []
        words = [*as_user, "bash", "-p", "-c", command]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    reached = "ulimit -S -u 0"
    hint = typed(f"{reached}; exec {sys.executable} {script}")
    (shows,) = re.findall(r"if `(.+)` is reached, raise it", hint)
    assert typed(f"{reached}; {shows}") == "0"
    assert typed(f"{reached}; {shows} hard; exec {sys.executable} {script}") == ""


def pip(typed: str) -> str:
    """Return what this command would install, told by pip itself without a network."""
    words = [sys.executable, "-m", *shlex.split(typed), "--dry-run", "--no-index"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode < 2, f"no command of pip: {done.stderr}"
    return done.stdout + done.stderr
