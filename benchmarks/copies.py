"""A process that holds a warm copy of each partition of an app, and nothing else. Run as a child of
`benchmarks.many_partitions`: `python -m benchmarks.copies BOOTSTRAP_SERVERS PARTITIONS [MODULE OF THE APP]`.

Its copies are those of a service, from the service's own supervisor. But it is no member of the group, which would give
it partitions of its own. Once a second it prints how many copies are warm, and the requests that it has sent.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter
from importlib import import_module
from typing import Any

from snapreplay.service.config.settings import load_settings
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.phase import CopyState
from snapreplay.service.decisions.first_start import begun
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.connection import AnyRequest, Connection
from snapreplay.service.runtime.context import Identity
from snapreplay.service.supervisor import Supervisor

SENT: Counter[str] = Counter()


_send = Connection.send


async def _counted(self: Connection, request: AnyRequest, kept_s: float = 0.0) -> Any:
    """Count what a connection sends."""
    SENT[type(request).__name__.partition("Request")[0]] += 1
    return await _send(self, request, kept_s)


async def main(servers: str, partitions: int, module: str = "benchmarks.ledger_app") -> None:
    app = import_module(module).app
    settings = load_settings({"kafka.bootstrap.servers": servers, "standby.replicas": 1})
    cluster, board = KafkaCluster(settings), StatusBoard()
    cluster.hold()
    view = await begun(app, settings, cluster, "refuse", lambda _: None)
    me = Identity.of_this_process("copies")
    supervisor = Supervisor(app, settings, cluster, view, me, board, lambda *_: None)
    supervisor.assigned(set(), Share(copies=tuple(range(partitions))))
    while True:
        warm = sum(copy.state == CopyState.WARM for copy in board.standbys())
        print(json.dumps({"warm": warm, "sent": SENT}), flush=True)
        await asyncio.sleep(1.0)  # until it is killed


if __name__ == "__main__":
    gc.set_threshold(5_000, 8, 2)  # as `snapreplay run` does
    Connection.send = _counted  # type: ignore[method-assign]  # of all clients in this process
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
