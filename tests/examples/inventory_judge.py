"""A judge of inventory.py, by brute force and without snapreplay; and seeded input for it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

HOLD_MS = 900_000


@dataclass(frozen=True)
class Sent:
    key: str
    value: dict[str, Any]
    timestamp_ms: int


def generate(seed: int, count: int) -> list[Sent]:
    """Few SKUs and order ids, so that ids come again, before and after they expire; jumps of time."""
    chance = random.Random(seed)
    now_ms, made = 1_700_000_000_000, []
    for number in range(count):
        now_ms += chance.choice([0, 0, 500, 30_000, 60_000])
        if chance.random() < 0.01:
            now_ms += chance.choice([HOLD_MS - 60_000, HOLD_MS, 50 * HOLD_MS])
        late_ms = 120_000 if chance.random() < 0.05 else 0
        order = f"o{chance.randrange(8)}"
        kind = chance.choices(
            ["receive", "reserve", "confirm", "cancel", "query"], [15, 50, 12, 10, 13]
        )[0]
        value: dict[str, Any] = {"type": kind}
        if kind in ("reserve", "confirm", "cancel"):
            value["order"] = order
        if kind in ("receive", "reserve"):
            value["quantity"] = chance.randrange(1, 6)
        if kind == "query":
            value["request"] = f"q{number}"
        made.append(Sent(f"sku-{chance.randrange(4)}", value, now_ms - late_ms))
    return made


@dataclass
class Judge:
    """One partition: a list of all reservations ever made, searched from its beginning each time."""

    now_ms: int = -1
    received: dict[str, int] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)

    def fold(self, sent: Sent) -> list[tuple[str, dict[str, Any]]]:
        """The outputs of this record, as (key, value)."""
        self.now_ms = max(self.now_ms, sent.timestamp_ms)
        outputs = []
        # What is due at the same time comes in the order of SKU and order, as timers do.
        for one in sorted(self.made, key=lambda one: (one["until_ms"], one["sku"], one["order"])):
            if one["state"] == "open" and one["until_ms"] <= self.now_ms:
                one["state"] = "expired"
                outputs.append((one["sku"], self._event("expired", one["sku"], one)))
        outputs.append((sent.key, self._answer(sent.key, sent.value)))
        return outputs

    def available(self, sku: str) -> int:
        held = [r for r in self.made if r["sku"] == sku and r["state"] in ("open", "confirmed")]
        return self.received.get(sku, 0) - sum(int(r["quantity"]) for r in held)

    def open_reservations(self, sku: str) -> list[dict[str, Any]]:
        found = [r for r in self.made if r["sku"] == sku and r["state"] == "open"]
        return [
            {"order": r["order"], "quantity": r["quantity"], "expires_at_ms": r["until_ms"]}
            for r in sorted(found, key=lambda r: str(r["order"]))
        ]

    def _event(self, kind: str, sku: str, what: dict[str, Any], why: str = "") -> dict[str, Any]:
        event = {"type": "event", "kind": kind, "available": self.available(sku)}
        event |= {name: what[name] for name in ("order", "quantity") if name in what}
        return event | ({"why": why} if why else {})

    def _answer(self, sku: str, value: dict[str, Any]) -> dict[str, Any]:
        kind = value["type"]
        if kind == "receive":
            self.received[sku] = self.received.get(sku, 0) + value["quantity"]
            return self._event("received", sku, value)
        if kind == "query":
            return {
                "type": "answer",
                "request": value["request"],
                "available": self.available(sku),
                "reservations": self.open_reservations(sku),
            }
        found = [
            r
            for r in self.made
            if (r["sku"], r["order"], r["state"]) == (sku, value["order"], "open")
        ]
        if kind == "reserve":
            if found:
                return self._event("rejected", sku, value, "already reserved")
            if value["quantity"] > self.available(sku):
                return self._event("rejected", sku, value, "out of stock")
            made = {"sku": sku, **value, "state": "open", "until_ms": self.now_ms + HOLD_MS}
            self.made.append(made)
            return self._event("reserved", sku, made)
        if not found:
            return self._event("rejected", sku, value, "no reservation")
        found[0]["state"] = "confirmed" if kind == "confirm" else "cancelled"
        return self._event(found[0]["state"], sku, found[0])
