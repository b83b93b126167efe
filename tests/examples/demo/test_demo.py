"""The demo itself, small: a real broker, real flights, a SIGKILL, a proof."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Timer

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from examples.demo.__main__ import INSTEAD, main
from examples.demo.demo import settings_for
from examples.demo.plan import KILLS_MAX, plan
from tests.conftest import SharedBroker
from tests.support.deadlines import scaled
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--rows=4000", "--kills=1", "--seed=11")
DEADLINE_S = 90


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """`main` lets SIGTERM interrupt the process, which is that of other tests, too."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose temporary directory must be empty again afterwards."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    yield {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    assert list(temporary.iterdir()) == []


def start(environment: dict[str, str], *arguments: str) -> "subprocess.Popen[str]":
    """The demo as a process, its words in one stream."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.whole
@pytest.mark.timeout(DEADLINE_S)
def test_one_kill(broker: SharedBroker, alone: dict[str, str]) -> None:
    """4,000 flights, one SIGKILL: everything holds, and the cluster is left as it was. It is the way round of
    a demo without Java, as the hint says."""
    before = topics(broker)
    instead = re.search(r'make demo ARGS="(.*)"`$', INSTEAD)
    assert instead is not None
    given = instead.group(1).replace("HOST:PORT", broker.bootstrap_servers).split()
    without_java = {**alone, "PATH": "/nowhere", "JAVA_HOME": ""}
    demo = start(without_java, *SMALL, *given)
    said, _ = demo.communicate(timeout=scaled(DEADLINE_S))
    assert demo.returncode == 0, said
    assert "kill 1: SIGKILL" in said, said
    for name in ("exactly once", "final state", "digest", "recovery", "takeover", "SIGTERM"):
        assert re.search(rf"^ {name} +yes", said, re.MULTILINE), said
    assert "4,000 outputs for 4,000 records" in said
    eventually(lambda: topics(broker) == before, "no topic left")


@pytest.mark.whole
@pytest.mark.timeout(300)
@pytest.mark.spark
def test_last_act(broker: SharedBroker, alone: dict[str, str]) -> None:
    """With Spark, on a cluster of others: it compacts while the service is killed, the owner adopts, a restore begins
    there, and the log is proved by replay. Each is a line of the table."""
    before = topics(broker)
    servers = f"--bootstrap-servers={broker.bootstrap_servers}"
    demo = start(alone, "--rows=1000", "--kills=1", "--seed=11", servers)
    said, _ = demo.communicate(timeout=scaled(150))
    assert demo.returncode == 0, said
    for name in ("exactly once", "recovery", "takeover", "compaction", "restore", "Spark audit", "SIGTERM"):
        assert re.search(rf"^ {name} +yes", said, re.MULTILINE), said
    assert "1,000 outputs for 1,000 records" in said
    assert len(re.findall(r"/adopt: Spark's snapshot of batch \d+ is adopted", said)) == 4
    eventually(lambda: topics(broker) == before, "no topic left")


@pytest.mark.whole
@pytest.mark.timeout(300)
@pytest.mark.kafka
@pytest.mark.spark
def test_interrupted(alone: dict[str, str]) -> None:
    """SIGINT in the middle of it: exit code 130, no process and no file stays."""
    demo = start(alone, *SMALL)
    guard = Timer(scaled(DEADLINE_S), demo.kill)
    guard.start()
    try:
        assert demo.stdout is not None
        said = ""
        while "snapreplay compact: Spark starts" not in said:
            line = demo.stdout.readline()
            assert line, f"the demo ended with {demo.wait()}:\n{said}"
            said += line
        children = psutil.Process(demo.pid).children(recursive=True)
        assert len(children) >= 4, "two keepers, the broker, the service"
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate()
    finally:
        guard.cancel()
    assert demo.returncode == 130, said + rest
    assert "everything is removed" in rest
    _, alive = psutil.wait_procs(children, timeout=scaled(30))
    assert alive == []


def test_no_broker_there() -> None:
    """An address without an answer is named, with the way round."""
    from examples.demo import topics as demo_topics
    from examples.demo.failed import DemoFailed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_topics, "ANSWER_S", 1.0)
        with pytest.raises(DemoFailed, match=r"127\.0\.0\.1:1.*\n.*a broker of its own"):
            demo_topics.reach("127.0.0.1:1")


@pytest.mark.parametrize("records", [100, 4_000, 336_776])
def test_settings_leave_something_to_strike(records: int) -> None:
    """Every run has many transactions per kill; snapshots are left to the number of records."""
    settings = settings_for(records)
    assert records / int(str(settings["batch.records_max"])) >= 20
    assert settings["snapshot.every_seconds"] == 0


@given(st.integers(0, 10**6), st.integers(1, KILLS_MAX))
def test_the_plan_strikes_everything_once_in_a_while(seed: int, kills: int) -> None:
    """Kills come one after the other inside the input; of three, each kind of moment occurs, a recovery never first and
    never twice in a row; the last recovery is by replay."""
    made = plan(seed, kills, 10_000)
    places, moments = [kill.records for kill in made], [kill.moment for kill in made]
    assert places == sorted(places)
    assert len(places) == kills
    assert places[0] > 0
    assert places[-1] < 10_000
    kinds = {"processing"} if kills < 3 else {"processing", "writing a snapshot", "recovering"}
    assert set(moments) == kinds
    assert moments[0] != "recovering"
    assert ("recovering", "recovering") not in pairwise(moments)
    modes = ["changes"] * (kills - 1) + ["replay"] if kills > 1 else ["changes"]
    assert [kill.mode for kill in made] == modes
    assert made == plan(seed, kills, 10_000)


@pytest.mark.parametrize("wrong", ["--kills=0", "--kills=many", "--rows=-5", "--rows=0", "--skip"])
def test_wrong_arguments_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything starts, by name and value; abbreviations too, which the Makefile would not see."""
    with pytest.raises(SystemExit) as refused:
        main([wrong])
    assert refused.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert all(part in said for part in wrong.split("="))


def test_without_java_the_way_round_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing, the package, and the arguments that need no Java."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main([]) == 1
    said = capsys.readouterr().out
    assert "the local broker needs Java 17 or newer, but there is no java command" in said
    assert f"`apt-get install default-jre-headless`; or {INSTEAD}" in said


def topics(broker: SharedBroker) -> set[str]:
    """Those of the demo; other tests make and remove theirs meanwhile."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return {name for name in admin.list_topics(timeout=scaled(30)).topics if "snapreplay-demo" in name}
