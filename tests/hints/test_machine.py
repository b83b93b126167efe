"""Hints about what a machine has: jars, Java, Maven, directories, certificates: what they name is done."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.localbroker import jars
from snapreplay.service.localbroker.broker import LocalBroker
from snapreplay.service.localbroker.errors import LocalBrokerFailed, LocalBrokerUnavailable
from snapreplay.service.settings import Settings
from snapreplay.snapshots.errors import UsageError


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
    """What apt-get would do."""
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
    assert refused.value.hint.startswith("apt-get install maven; or ")
    (variable,) = re.findall(r"; or (\w+)=DIR that was filled elsewhere", refused.value.hint)
    assert maven is not None
    (bare / "mvn").symlink_to(maven)
    jars.check()
    (bare / "mvn").unlink()
    monkeypatch.setenv(variable, str(filled))
    assert jars.ensure(pytest.fail).root == filled


def test_java_and_maven_are_installed_as_one_hint_says(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--check` names both at once; then it is silent."""
    java = (bare / "java").readlink()
    (bare / "java").unlink()
    with pytest.raises(LocalBrokerUnavailable) as refused:
        jars.check()
    assert re.findall(r"apt-get install ([a-z-]+)", refused.value.hint) == [
        "default-jre-headless",
        "maven",
    ]
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
    named = re.match(r"Its whole log: (.+)\. It ends with:\n(.+)", refused.value.hint, re.DOTALL)
    assert named is not None
    log = Path(named[1]).read_text()
    assert all(line in log for line in named[2].splitlines())
    assert "Too small maximum heap" in log


def test_a_directory_that_can_be_written_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a broker's data, and for the jars: another one is named."""
    taken = tmp_path / "file"
    taken.touch()
    kafka = jars.ensure()
    with pytest.raises(LocalBrokerUnavailable) as refused:
        kafka.format(taken, 1, "CLUSTER")
    assert refused.value.hint == "Name another directory, one that this user may write."
    kafka.format(tmp_path / "data", 1, "CLUSTER")
    assert (tmp_path / "data" / "meta.properties").exists()
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(taken / "jars"))
    with pytest.raises(LocalBrokerUnavailable) as refused:
        jars.ensure(pytest.fail)
    assert "make that directory writable, or name another one" in refused.value.hint
    monkeypatch.setenv(jars.JARS_DIR_VARIABLE, str(kafka.root))
    jars.ensure(pytest.fail)


def test_certificate_and_key_are_of_one_pair_and_an_encrypted_key_has_its_password(
    tmp_path: Path,
) -> None:
    """Both conditions of the hint: with them the files are loaded."""
    for name in ("one", "two"):
        made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -passout pass:secret -subj /CN={name} -days 2"
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(
            ["openssl", *made.split(), *files], cwd=tmp_path, check=True, capture_output=True
        )

    def load(key: str, *password: str) -> None:
        files = {
            "ssl.certfile": str(tmp_path / "one.pem"),
            "ssl.keyfile": str(tmp_path / f"{key}.key"),
        }
        given = dict(zip(["ssl.password"], password, strict=False))
        client_arguments(Settings(kafka={"security.protocol": "SSL", **files, **given}))

    for wrong in (["one"], ["two", "secret"]):
        with pytest.raises(UsageError) as refused:
            load(*wrong)
        assert "certificate and key of one pair" in refused.value.hint
        assert "an encrypted key needs kafka.ssl.password" in refused.value.hint
    load("one", "secret")
