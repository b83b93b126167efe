"""An app that can fail in every way there is, and a partition of it, driven as the service drives it."""

import msgspec

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.codecs import json, nullable
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of

payments = Topic("payments", value=nullable(json(dict)))
rates = Topic("rates", value=json(int))
balances = Topic("balances")
LIMITS = {"balances": 500}

app = App(
    "ledger",
    inputs=[payments, rates],
    outputs=[balances],
    state=lambda: MapState(str, dict, default=lambda: {"n": 0, "log": []}),
    version="v1",
)


@app.handler(payments)
def on_payment(record, state, out):
    """Every way to fail there is, each after half of the record's effects."""
    account = state[record.key]
    account["n"] += 1
    account["seen"] = state.stream_time_ms
    out.send(balances, key=record.key, value=account["n"])
    match (record.value or {}).get("do"):
        case "raise":
            raise ValueError("no")
        case "undeclared":
            out.send(Topic("nowhere"), key="a", value=1)
        case "oversize":
            out.send(balances, key="a", value="x" * 1000)
        case "unwritable":
            account["log"].append({1, 2})
        case "wide":
            account["n"] = 2**70
        case "alias":
            state["alias/a"] = state["alias/b"] = account
        case "delete":
            state.pop("rate", None)
        case "answer":
            return 5
        case _:
            pass
    return None


@app.handler(rates)
def on_rate(record, state, out):
    state["rate"] = {"n": record.value, "log": []}
    out.send(balances, key=record.key, value=[record.value, len(state)])


def raw(topic, offset, value=None, *, key=b"ada", at=0):
    data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    return RawRecord(topic, 0, offset, at, key, data)


def doing(offset, what, key=b"ada", at=0):
    return raw("payments", offset, {"do": what}, key=key, at=at)


START = {"payments": 0, "rates": 0}


class Bench:
    """A partition, driven as the service drives it."""

    def __init__(self, policy=ErrorPolicy.DEAD_LETTER):
        self.store = store_of(app.state())
        self.fold = Fold(app, self.store, 0, output_limits=LIMITS, policy=policy)
        self.positions = START
        self.applied = []

    def batch(self, records, *, merge=True, slice_size=3):
        self.fold.begin(self.positions)
        try:
            for start in range(0, len(records), slice_size):
                self.fold.feed(records[start : start + slice_size])
            applied = self.fold.finish()
        except RecordError:
            self.fold.abandon()
            applied = all_of(self.fold.isolating(self.positions, Portion(records)))
        if merge:
            self.store.merge()
        self.positions = applied.positions
        self.applied.append(applied)
        return applied

    def effect(self):
        """Return what must not depend on batch boundaries."""
        return {
            "digest": self.store.digest,
            "stream_time": self.store.stream_time_ms,
            "outputs": [one for a in self.applied for one in a.outputs],
            "dead": [one for a in self.applied for one in a.dead_letters],
            "errors": [str(one) for a in self.applied for one in a.errors],
            "skipped": offsets(s for a in self.applied for s in a.skipped),
            "count": sum(a.record_count for a in self.applied),
            "positions": self.positions,
        }


def offsets(ranges):
    return {(one.topic, offset) for one in ranges for offset in range(one.start_offset, one.end_offset)}
