"""Types reach from the topic to the state. mypy judges this module with all others (`make check`): what is asserted is
what it infers, and an `ignore` that hides no error of its code is an error itself. It is not imported."""

from typing import Any, assert_type

import msgspec

from snapreplay import App, MapState, Out, Record, Stores, Topic, i64, json, msgpack, nullable, raw, utf8


class Payment(msgspec.Struct):
    amount: int


class Account(msgspec.Struct):
    balance: int = 0


plain = Topic("plain")
payments = Topic("payments", key=utf8, value=json(Payment))
numbers = Topic("numbers", key=i64)
totals = Topic("totals", value=msgpack(dict[str, int]))
cancelled = Topic("cancelled", key=nullable(raw), value=nullable(json(Payment)))
assert_type(plain, Topic[str, Any])
assert_type(payments, Topic[str, Payment])
assert_type(numbers, Topic[int, Any])
assert_type(totals, Topic[str, dict[str, int]])
assert_type(cancelled, Topic[bytes | None, Payment | None])


def new_state() -> MapState[str, Account]:
    return MapState(str, Account, default=Account)


app = App("ledger", inputs=[payments], outputs=[totals], state=new_state)
inferred = App("ledger", inputs=[payments], state=lambda: MapState(str, Account))
assert_type(app, App[MapState[str, Account]])
assert_type(inferred, App[MapState[str, Account]])


@app.handler(payments)
def good(record: Record[str, Payment], state: MapState[str, Account], out: Out) -> None:
    assert_type(state[record.key].balance, int)
    assert_type(record.value.amount, int)
    out.send(totals, key=record.key, value={"n": 1})
    out.send(totals, key=5, value={})  # type: ignore[misc]
    out.send(totals, key="a", value=[1])  # type: ignore[misc]
    state[5] = Account()  # type: ignore[index]
    state["a"] = Payment(1)  # type: ignore[assignment]


@app.handler(payments)  # type: ignore[arg-type]
def wrong_key(record: Record[int, Payment], state: MapState[str, Account], out: Out) -> None: ...


@app.handler(payments)  # type: ignore[arg-type]
def wrong_value(record: Record[str, int], state: MapState[str, Account], out: Out) -> None: ...


@app.handler(payments)  # type: ignore[arg-type]
def wrong_state(record: Record[str, Payment], state: MapState[str, int], out: Out) -> None: ...


@app.handler(payments)  # type: ignore[arg-type]
async def asynchronous(r: Record[str, Payment], s: MapState[str, Account], o: Out) -> None: ...


@app.handler(payments)  # type: ignore[arg-type]
def two_arguments(record: Record[str, Payment], state: MapState[str, Account]) -> None: ...


Topic("t", value=json)  # type: ignore[call-overload]


class Opened(msgspec.Struct, tag=True):
    limit: int = 0


class Closed(msgspec.Struct, tag=True): ...


Seat = tuple[str, int]
Door = Opened | Closed
counts = MapState(str, int)
seats = MapState(Seat, Door, ordered=True)
assert_type(seats, MapState[tuple[str, int], Opened | Closed])
MapState(float, int)  # type: ignore[type-var] # must be refused: no key type
unions = MapState[str, Opened | Closed](str, Opened | Closed)
annotated: MapState[str, Opened | Closed] = MapState(str, Opened | Closed)
assert_type(counts.get("a"), int | None)
assert_type(counts.get("a", 1), int)
assert_type(counts.get("a", "none"), int | str)
assert_type(counts.pop("a"), int)
assert_type(counts.pop("a", None), int | None)
assert_type(counts.setdefault("a", 1), int)
assert_type(unions["a"], Opened | Closed)
assert_type(unions.get("a"), Opened | Closed | None)
counts.setdefault("a", "none")  # type: ignore[arg-type] # must be refused: no int
counts.setdefault("a")  # type: ignore[call-arg] # must be refused: None is no int


class Shop(Stores):
    def __init__(self) -> None:
        self.items = MapState(bytes, Account)
        self.holds = MapState(tuple[bytes, str], Payment, ordered=True)


shop = App("shop", inputs=[payments], state=Shop)
short = App("shop", inputs=[payments], state=lambda: Stores(items=MapState(str, Account)))
assert_type(shop, App[Shop])
assert_type(short, App[Stores])


@shop.handler(payments)
def on_stores(record: Record[str, Payment], state: Shop, out: Out) -> None:
    assert_type(state.items, MapState[bytes, Account])
    assert_type(state.holds[(b"a", "b")], Payment)
    for key, hold in state.holds.range(prefix=(b"a",)):
        assert_type(key, tuple[bytes, str])
        assert_type(hold.amount, int)
    state.holds[("a", "b")] = Payment(1)  # type: ignore[index] # must be refused: another key
    state.items["a"] = Account()  # type: ignore[index] # must be refused: another key


@short.handler(payments)
def on_short(record: Record[str, Payment], state: Stores, out: Out) -> None:
    assert_type(state.items, MapState[Any, Any])
