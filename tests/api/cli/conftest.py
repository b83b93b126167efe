"""Running commands as a user does, in this process."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from snapreplay.api.cli.root import app
from snapreplay.app.load import load_app
from snapreplay.app.names import OWN_SUFFIXES
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import TopicPartition
from snapreplay.testing import RealHarness
from tests.support.deadlines import scaled
from tests.support.kafka import decided
from tests.support.loggers import loggers_put_back
from tests.support.stage import settings_for
from tests.support.wire import refusing

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """`invoke("restore-status", "--url", url)` in an empty directory, without the user's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("SNAPREPLAY_HTTP__PORT", "SNAPREPLAY_HTTP__HOST"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
        _forget_modules_of(tmp_path.parent)
        words = [str(each) for each in arguments]
        return CliRunner().invoke(app, words, input=stdin, prog_name="snapreplay")

    with loggers_put_back():  # `run` and `dev` log to this invocation's standard error, which is closed after it
        yield run
    _forget_modules_of(tmp_path.parent)


def _forget_modules_of(folder: Path) -> None:
    """A command is a process of its own for its user: it imports no app of an earlier test."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def closed_address() -> Iterator[str]:
    """An address that refuses connections as long as the test lasts."""
    with refusing() as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A small app in the working directory."""
    path = tmp_path / "cli_ledger.py"
    path.write_text(
        "from snapreplay import App, MapState, Topic\n"
        "payments = Topic('payments')\n"
        "app = App('ledger', inputs=[payments], state=lambda: MapState(str, int, default=int))\n"
        "@app.handler(payments)\n"
        "def on_payment(record, state, out):\n"
        "    state[record.key] += record.value\n"
    )
    return path


APP = """
import msgspec
from snapreplay import App, MapState, Topic, json


class Payment(msgspec.Struct):
    amount: int


payments, balances = Topic("NAME-in", value=json(Payment)), Topic("NAME-out")
app = App("NAME", inputs=[payments], outputs=[balances], state=lambda: MapState(str, int, default=int))


@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value.amount
    if record.value.amount == POISON:
        raise ValueError("poison")
    out.send(balances, key=record.key, value=state[record.key])
"""


class Desk:
    """Commands about one app."""

    def __init__(self, invoke, folder, name, broker):
        self.name, self.file = name, folder / "fed_ledger.py"
        self._invoke, self._broker = invoke, broker
        self.write(poison=13)

    def write(self, poison):
        self.file.write_text(APP.replace("NAME", self.name).replace("POISON", str(poison)))
        sys.modules.pop("fed_ledger", None)

    def harness(self, policy="dead_letter"):
        """The service, with two partitions."""
        sys.modules.pop("fed_ledger", None)
        return RealHarness(
            load_app(str(self.file)),
            self._broker,
            partitions=2,
            settings={"errors": {"policy": policy}},
            deadline_s=scaled(60),
        )

    def words(self, command, *more):
        return [*command.split(), self.file, *more, "--bootstrap-servers", self._broker.bootstrap_servers]

    async def type(self, *words, code=0, stdin=None):
        done = await asyncio.to_thread(self._invoke, *self.words(*words), stdin=stdin)
        assert done.exit_code == code, done.output
        return done

    async def tail(self, topic, *options):
        """Show what is committed by now: a commit is answered before each of its partitions has its marker."""
        whole = f"{self.name}-{topic}" if topic in OWN_SUFFIXES else topic
        cluster = KafkaCluster(settings_for(self._broker.bootstrap_servers))
        for number in range(2):
            await decided(cluster, TopicPartition(whole, number))
        done = await self.type("tail", topic, "--from", "earliest", "-o", "json", *options)
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def desk(invoke, tmp_path, unique, broker):
    yield Desk(invoke, tmp_path, unique("fed"), broker)
    sys.modules.pop("fed_ledger", None)
