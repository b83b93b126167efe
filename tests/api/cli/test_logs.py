"""The foreground log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from snapreplay.api.cli.logs import Level, configure


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Puts the root logger back as it was. The client's goes by it, whatever a command did before."""
    root, client = logging.getLogger(), logging.getLogger("aiokafka")
    client.handlers[:], client.propagate = [], True
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("aiokafka", "asyncio", "kafka", "uvicorn"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize(("level", "seen"), [(Level.INFO, False), (Level.DEBUG, True)])
def test_libraries_are_quiet_unless_debugging(capsys, level, seen):
    """The client's news is noise, its warnings are not."""
    configure(level)
    logging.getLogger("aiokafka.consumer").info("news")
    logging.getLogger("aiokafka.consumer").warning("warned")
    written = capsys.readouterr().err
    assert ("news" in written) is seen
    assert "warned" in written


def test_lines_carry_utc_time_level_and_name_wherever_the_machine_is(capsys, monkeypatch):
    """On standard error; lines of processes in different time zones can be put in one order."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        configure(Level.INFO)
        logging.getLogger("snapreplay").info("live")
    finally:
        monkeypatch.undo()
        time.tzset()
    captured = capsys.readouterr()
    assert (captured.out, captured.err[10], captured.err[23]) == ("", "T", "Z")
    assert captured.err.endswith("INFO    snapreplay: live\n")
    stamp = datetime.fromisoformat(captured.err.split()[0])
    assert abs(stamp.timestamp() - time.time()) < 60
