"""The logs of the wired app of `tests.checker.app`, written by hand, each partition with at most one fault: in its
table, its internal topic or its call; and the rules that each fault breaks.

The first payment of each batch has `to` and `ask`. What it leads to is handled in the next batch that is not empty,
behind one record of the table; what the last one leads to is not handled any more. There are no snapshots.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import msgspec
import xxhash

from tests.checker.forged import (
    BATCHES,
    BEGAN_MS,
    EMPTY_BATCHES,
    PER_BATCH,
    STAGES,
    Body,
    Draft,
    Fault,
    Forgery,
    Owner,
    record,
)
from tests.checker.forged import digest as digest_of
from tests.checker.verdict import Check
from tests.support.reference import book

RATES = (("k0", 3), ("k1", 2), ("k0", None), ("k3", 5), ("k1", None), ("k1", 7))
"""The table's records; None: a tombstone."""
TABLE, HOPS, ANSWERS = "rates", "internal-hops", "internal-ask-results"
ONCE, ATOMIC, STATE = Check.EXACTLY_ONCE, Check.ATOMICITY, Check.STATE
Stores = dict[str, dict[str, Any]]
Fed = list[tuple[str, bytes | None]]


class Applied(NamedTuple):
    """What a batch has made of the state before it, and which outputs. The last output is of the answer."""

    before: Stores
    after: Stores
    outputs: list[tuple[str, Body]]


@dataclass(frozen=True)
class WiredFault(Fault):
    """`feed` changes what is written to a topic; `turn` what the batch of the stage has made."""

    feed: Mapping[str, Callable[[Fed], object]] = field(default_factory=dict)
    turn: Callable[[Applied], object] = lambda applied: None


class Case(NamedTuple):
    fault: WiredFault = WiredFault()
    breaks: frozenset[Check] = frozenset()


class WiredOwner(Owner):
    """An owner who knows all three stores. `fed`: the records of the topics that it reads beside its inputs."""

    fault: WiredFault

    def __post_init__(self) -> None:
        self.stores: Stores = {"default": self.accounts, "rates": {}, "_calls": {}}
        self.fed = {
            TABLE: [(key, None if rate is None else b"%d" % rate) for key, rate in RATES],
            HOPS: [],
            ANSWERS: [],
        }
        for batch in range(BATCHES):
            offset = batch * PER_BATCH["payments"]
            key, amount = record("payments", offset)
            self.fed[HOPS].append(self._hop(offset))
            answer = [self._call_id(offset), 1, "", b"%d" % (amount + 1)]
            self.fed[ANSWERS].append((key, msgpack.packb(answer)))
        for name, change in self.fault.feed.items():
            change(self.fed[name])
        self.positions = {self.topic(name): 0 for name in (*PER_BATCH, *self.fed)}

    def topic(self, name: str) -> str:
        return f"{self.app_id}-{name}" if name in (HOPS, ANSWERS) else f"{name}-{self.app_id}"

    def next_batch(self) -> Draft:
        self.batch += 1
        before, at, packed = deepcopy(self.stores), dict(self.positions), self._packed()
        outputs = [] if self.batch in EMPTY_BATCHES else [*self._apply()]
        if self.fault.stage == f"batch{self.batch}":
            self.fault.turn(Applied(before, self.stores, outputs))
        after = self._packed()
        changes = {name: _changed(packed.get(name, {}), after.get(name, {})) for name in self.stores}
        increment = self._increment(
            [[t, at[t], end, end - at[t]] for t, end in self.positions.items() if end > at[t]], outputs
        )
        sums = {name: digest_of(entries) for name, entries in after.items()}
        increment |= {"digest": _whole(sums), "store_digests": sums if sums.keys() - {"default"} else {}}
        increment["record_count"] = sum(each[3] for each in increment["ranges"])
        if outputs:
            key, value = self._hop(at[self.topic("payments")])
            sent = msgpack.packb([self.topic(HOPS), key.encode(), value, None, False, None, []])
            increment["outputs"][self.topic(HOPS)] = 1
            increment["outputs_xxh64"][self.topic(HOPS)] = xxhash.xxh64_intdigest(sent)
        body = {"batch": self.batch, "part": 0, "stores": {name: each for name, each in changes.items() if each}}
        return Draft(self, [body] if outputs else [], increment, outputs)

    def _apply(self) -> Iterator[tuple[str, Body]]:
        for name, count in {**PER_BATCH, TABLE: 1, HOPS: 1, ANSWERS: 1}.items():
            topic, start = self.topic(name), self.positions[self.topic(name)]
            is_empty = name in (HOPS, ANSWERS) and self.batch == 1  # nothing was sent before
            self.positions[topic] += 0 if is_empty else count
            for offset in range(start, self.positions[topic]):
                booked = self._books(name, offset)
                if booked is not None:
                    key, amount = booked
                    yield key, {"id": f"{topic}-{self.number}-{offset}", **book(self.accounts, key, amount)}

    def _books(self, name: str, offset: int) -> tuple[str, int] | None:
        """Return the key and the amount that a record adds; None: it is of the table."""
        key, value = self.fed[name][offset] if name in self.fed else ("", None)
        match name:
            case "payments":
                key, amount = record(name, offset)
                if offset % PER_BATCH[name] == 0:
                    self._ask(offset, key, amount)
                return key, amount * self.stores["rates"].get(key, 1)
            case "refunds":
                key, amount = record(name, offset)
                return key, -amount
            case "rates":
                self.stores["rates"].pop(key, None)
                if value is not None:
                    self.stores["rates"][key] = int(value)
                return None
            case "internal-hops":
                return key, msgspec.json.decode(value or b"")["amount"]
            case _:
                call_id, _, _, result = msgpack.unpackb(value or b"")
                self.stores["_calls"].pop(call_id, None)  # and it counts, whether one was pending or not
                return key, int(result)

    def _ask(self, offset: int, key: str, amount: int) -> None:
        calls = self.stores["_calls"]
        number = calls[""][1] + 1 if calls else 1
        calls[""] = ["", number, -1, None, None]
        calls[self._call_id(offset)] = ["ask", number, BEGAN_MS + offset, key.encode(), b"%d" % amount]

    def _hop(self, offset: int) -> tuple[str, bytes]:
        _, amount = record("payments", offset)
        source = f"{self.topic('payments')}-{self.number}-{offset}"
        return _hop_key(offset), msgspec.json.encode({"amount": amount, "id": source})

    def _call_id(self, offset: int) -> str:
        return f"{self.app_id}/{self.topic('payments')}-{self.number}-{offset}/0"

    def _packed(self) -> dict[str, dict[bytes, bytes]]:
        packed = {
            name: {msgpack.packb(key): msgpack.packb(value) for key, value in entries.items()}
            for name, entries in self.stores.items()
        }
        return {name: entries for name, entries in packed.items() if entries}


class WiredForgery(Forgery):
    stages: tuple[str, ...] = tuple(each for each in STAGES if not each.startswith("snapshot"))
    inputs, owner = (*PER_BATCH, TABLE, HOPS, ANSWERS), WiredOwner

    def topic(self, name: str) -> str:
        return f"{self.app_id}-{name}" if name in (HOPS, ANSWERS) else super().topic(name)

    def _feed(self, name: str, count: int) -> None:
        for owner in self.owners:
            assert isinstance(owner, WiredOwner)
            for topic, fed in owner.fed.items() if name == "payments" else ():
                for offset, (key, value) in enumerate(fed):
                    time_ms = BEGAN_MS + offset
                    self._plain.produce(self.topic(topic), value, key, partition=owner.number, timestamp=time_ms)
            for offset in range(count):
                key, amount = record(name, offset)
                paid: dict[str, Any] = {"amount": amount}
                if name == "payments" and offset % PER_BATCH[name] == 0:
                    paid |= {"to": _hop_key(offset), "ask": True}
                time_ms, encoded = BEGAN_MS + offset, msgspec.json.encode(paid)
                self._plain.produce(self.topic(name), encoded, key, partition=owner.number, timestamp=time_ms)
        assert self._plain.flush(60.0) == 0


def _hop_key(offset: int) -> str:
    return f"k{(offset + 1) % 4}"


def _changed(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> dict[bytes, bytes | None]:
    return {key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)}


def _whole(sums: Mapping[str, list[int]]) -> list[int]:
    """docs/FORMAT.md "Digest": of a state with several stores."""
    whole = [0, 0, 0]
    for store, (count, a, b) in sums.items():
        factor = 1 if store == "default" else xxhash.xxh64_intdigest(store.encode(), 42) | 1
        whole = [whole[0] + count, (whole[1] + factor * a) % 2**64, (whole[2] + factor * b) % 2**64]
    return whole


# ------------------------------------------------------------------------------- faults


def _case(*breaks: Check, stage: str = "batch7", **fault: Any) -> Case:
    return Case(WiredFault(stage, **fault), frozenset(breaks))


def _another_amount(fed: Fed) -> None:
    key, value = fed[-1]
    fed[-1] = key, msgspec.json.encode(msgspec.json.decode(value or b"") | {"amount": 1})


def _answer_lost(made: Applied) -> None:
    """The position is behind the answer, its call is still pending, and nothing was booked."""
    key, _ = made.outputs.pop()
    call_id = next(each for each in made.before["_calls"] if each)
    _, _, _, _, request = made.before["_calls"][call_id]
    made.after["_calls"][call_id] = made.before["_calls"][call_id]
    made.after["default"][key]["n"] -= 1
    made.after["default"][key]["sum"] -= int(request) + 1


def _unsaid(draft: Draft) -> None:
    """The increment does not say that something was sent to the internal topic."""
    for said in (draft.increment["outputs"], draft.increment["outputs_xxh64"]):
        del said[f"{draft.owner.app_id}-{HOPS}"]


def _calls_forgotten(made: Applied) -> None:
    for call_id in made.after["_calls"].keys() - made.before["_calls"].keys():
        del made.after["_calls"][call_id]


CASES: dict[str, Case] = {
    "nothing": Case(),
    "internal record lost": _case(ONCE, feed={HOPS: lambda fed: fed.pop()}),
    "internal record doubled": _case(ONCE, feed={HOPS: lambda fed: fed.append(fed[-1])}),
    "internal record of another content": _case(ONCE, feed={HOPS: _another_amount}),
    "internal record of another program": _case(ONCE, feed={HOPS: lambda fed: fed.append(("k0", b"foreign"))}),
    "internal record that no batch speaks of": _case(ATOMIC, draft=_unsaid),
    "internal record handled twice": _case(ONCE, draft=lambda draft: draft.outputs.insert(-1, draft.outputs[-2])),
    "entry of the table lost": _case(STATE, turn=lambda made: made.after["rates"].pop("k1")),
    "tombstone of the table ignored": _case(
        ONCE, STATE, stage="batch5", turn=lambda made: made.after["rates"].update(made.before["rates"])
    ),
    "answer lost": _case(ONCE, STATE, turn=_answer_lost),
    "answer that comes twice counts twice": _case(
        ONCE, ATOMIC, STATE, feed={ANSWERS: lambda fed: fed.insert(4, fed[3])}
    ),
    "call forgotten": _case(STATE, turn=_calls_forgotten),
}
"""In partitions of one topic. What is lost in the internal topic is its last record: no partition has read it."""
