"""A real Kafka broker for tests, without Docker."""

from __future__ import annotations

from pathlib import Path

from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker


def broker(data_dir: Path | str | None = None, port: int = 0) -> LocalBroker:
    """Provide a local Kafka broker for the length of a `with` block; `async with` works, too. Its `bootstrap_servers`
    is the address for clients. It ends with this process, even after a SIGKILL.

    Args:
        data_dir: where to keep the data; None: a temporary directory, removed at the end.
        port: of 127.0.0.1; 0: a free one.

    Raises (at the start of the block):
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed; names the remedy.
        UsageError: another program listens on the port.
    """
    return LocalBroker(data_dir=None if data_dir is None else Path(data_dir), port=port, properties=KEEP_OLD_RECORDS)
