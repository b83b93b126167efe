"""An app's second version as a file, and the draft of its upgrade, of topics in memory."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from snapreplay.app.load import load_app
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import Manifest
from snapreplay.snapshots.jobs.compaction import Compaction, PartitionResult
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import PlainEngine, Topics
from tests.support.in_memory import InMemory
from tests.support.proposals import Job

IN_CENTS = "return key, old['sum'] * 100"
BY = "draft-upgrade@test/1"

_SECOND = """
from snapreplay import App, MapState, Topic

payments, balances = Topic("payments-{name}"), Topic("balances-{name}")
app = App(
    "{name}",
    inputs=[payments],
    outputs=[balances],
    state=lambda: MapState(str, int, default=int),
    schema_version={from_schema} + 1,
)


@app.upgrade({from_schema}, dict)
def in_cents(key, old):
    {body}


@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value["amount"] * 100
    out.send(balances, key=record.key, value={{"id": record.id, "cents": state[record.key]}})
"""
_numbers = count()


def second_version(folder: Path, name: str, body: str = IN_CENTS, from_schema: int = 1) -> str:
    """The ledger with cents, in a file of its own."""
    file = folder / f"second{next(_numbers)}.py"
    file.write_text(_SECOND.format(name=name, body=body, from_schema=from_schema), "utf-8")
    return str(file)


def drafted(bench: InMemory, app: str, topics: Topics | None = None) -> PartitionResult:
    """Run a job without Spark on the log as it is."""
    logs = MemoryTopics(bench.broker.logs)
    topics = topics or Topics(logs)
    topics.ids = dict(bench.broker.topic_ids)
    app_id = load_app(app).app_id
    (result,) = Compaction(PlainEngine().for_each, topics.open, app_id, BY, lambda: 7, app, drafts=True).run()
    return result


def forged(bench: InMemory, result: PartitionResult, **changed: Any) -> int:
    """Write its manifest again with other fields."""
    record = bench.log(bench.snapshots).committed_at(result.manifest_offset)
    manifest = decode((record.value if record else b"") or b"")
    assert isinstance(manifest, Manifest)
    made = {name: make(manifest) for name, make in changed.items()}
    return Job(bench).append(encode(msgspec.structs.replace(manifest, **made)))
