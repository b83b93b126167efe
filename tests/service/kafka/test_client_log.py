"""The client's warnings: each cause once a minute."""

import logging

import pytest

from snapreplay.service.kafka.client_log import CLIENT_LOGGER, Summary, summarise_client_log
from tests.support import apps
from tests.support.stage import until
from tests.support.tampering import delete


class Kept(logging.Handler):
    """Keeps the lines."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class Bench:
    """A client's logger whose lines are kept, with time that only the test moves."""

    def __init__(self):
        self.now = 1000.0
        self.kept = Kept()
        target = logging.Manager(logging.RootLogger(logging.INFO)).getLogger("target")
        target.addHandler(self.kept)
        self.summary = Summary(target, lambda: self.now)
        self.log = logging.Manager(logging.RootLogger(logging.INFO)).getLogger("client")
        self.log.addHandler(self.summary)

    @property
    def lines(self):
        return self.kept.lines


@pytest.fixture
def bench():
    return Bench()


def test_a_repeated_line_is_said_at_once_and_then_once_a_minute(bench):
    """With how often it was repeated."""
    for _ in range(1000):
        bench.log.error("Topic %s not found", "orders")
        bench.now += 0.07
    assert bench.lines[0] == "Topic orders not found"
    assert bench.lines[1].startswith("Topic orders not found (")
    assert bench.lines[1].endswith("times in the last 60 s)")
    assert len(bench.lines) == 2


def test_what_says_something_new_passes(bench):
    """Another topic, another error, another level; only addresses in memory make no difference. Whoever asks for lower
    levels wants each of them."""
    bench.log.info("joined")
    bench.log.info("joined")
    bench.log.error("Topic %s not found", "orders-1")
    bench.log.error("Topic %s not found", "orders-2")
    bench.log.warning("Topic %s not found", "orders-2")
    bench.log.error("failed: <Connection at 0x7f01>")
    bench.log.error("failed: <Connection at 0x7f02>")
    assert bench.lines == [
        "joined",
        "joined",
        "Topic orders-1 not found",
        "Topic orders-2 not found",
        "Topic orders-2 not found",
        "failed: <Connection at 0x7f01>",
    ]


@pytest.fixture
def client_logger():
    """Leave the logger as it was, afterwards."""
    logger = logging.getLogger(CLIENT_LOGGER)
    before = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [], True
    yield logger
    logger.handlers[:], logger.propagate = before


async def test_an_input_that_is_deleted_under_a_service_is_not_a_flood(client_logger, caplog, stage, unique):
    """The client says again and again that it is not there. The log says it once, then at most once a minute."""
    here = await stage(apps.ledger(unique("flood")))
    summarise_client_log()
    met = Kept()
    client_logger.addHandler(met)
    topic = here.app.inputs[0].name
    said = f"Topic {topic} not found in cluster metadata"
    async with here.running():
        delete(here.bootstrap_servers, topic)
        await until(lambda: met.lines.count(said) > 10, "a flood")
    lines = [line for line in map(logging.LogRecord.getMessage, caplog.records) if line.startswith(said)]
    assert lines[0] == said
    assert 2 * len(lines) < met.lines.count(said)
