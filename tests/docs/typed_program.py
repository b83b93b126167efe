"""A program as a user writes it, with all parts of the API: `make lint` checks its types with mypy, `make pyright` with
pyright."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_type

import msgspec

from snapreplay import (
    Answer,
    App,
    BatchSettings,
    Call,
    Closed,
    HttpSettings,
    MapState,
    MapView,
    Out,
    Pair,
    Record,
    SchemaRegistry,
    Service,
    Settings,
    Stores,
    StoresView,
    Table,
    Timer,
    Topic,
    json,
    nullable,
    running,
)
from snapreplay.testing import Expected, Harness, RealHarness, check, check_upgrade, real_harness, record


class Payment(msgspec.Struct):
    amount: int


class Account(msgspec.Struct):
    balance: int = 0


payments = Topic("payments", value=json(Payment))
balances = Topic("balances", value=json(Account))
app = App("ledger", inputs=[payments], outputs=[balances], state=lambda: MapState(str, Account, default=Account))
settings = Settings(
    kafka={"bootstrap.servers": "127.0.0.1:9092"}, http=HttpSettings(port=0), batch=BatchSettings(records_max=100)
)


@app.handler(payments)
def on_payment(record: Record[str, Payment], state: MapState[str, Account], out: Out) -> None:
    account = state[record.key]
    account.balance += record.value.amount
    out.send(balances, key=record.key, value=account)


class Customer(msgspec.Struct):
    name: str


class Order(msgspec.Struct):
    customer: str
    amount: int


class Shop(Stores):
    def __init__(self) -> None:
        self.accounts = MapState(str, Account)
        self.customers = MapState(str, Customer)
        self.minutes = MapState(tuple[str, int], int, default=int)
        self.visits = MapState(tuple[str, int], list[int], default=list[int], ordered=True)
        self.paid = MapState(tuple[str, int, int], Payment, ordered=True)
        self.ordered = MapState(tuple[str, int, int], Order, ordered=True)


registry = SchemaRegistry("http://127.0.0.1:8081")
orders = Topic("orders", value=registry.avro(Order))
customers = Topic("customers", value=nullable(json(Customer)))
regions = Topic.matching("orders-.*", value=json(Order))
named = Topic("named", value=json(tuple[str, int]))
shop = App("shop", inputs=[payments, orders, customers, regions], outputs=[named], state=Shop)
by_customer = shop.topic("by-customer", value=json(Order))
names = shop.table(customers, store="customers")


@shop.window("minutes", size_ms=60_000, grace_ms=5_000, store="minutes")
def minute(closed: Closed[str, int], state: Shop, out: Out) -> None:
    out.send(named, key=closed.key, value=(closed.key, closed.value))


@shop.session("visits", gap_ms=60_000, grace_ms=5_000, merge=lambda one, other: [*one, *other], store="visits")
def visit(closed: Closed[str, list[int]], state: Shop, out: Out) -> None:
    out.send(named, key=closed.key, value=(closed.key, sum(closed.value)))


@shop.handler(regions)
def on_order(record: Record[str, Order], state: Shop, out: Out) -> None:
    for window in minute.of(record, state, out):
        state.minutes[window] += 1
    for session in visit.of(record, state, out):
        state.visits[session].append(record.value.amount)
    out.send(by_customer, key=record.value.customer, value=record.value)
    out.call(geocode, record.key, record.value.customer)
    state.accounts.schedule(record.key, record.timestamp_ms + 1_000, timer="remind")


@shop.join(by_customer, names, how="left")
def enrich(pair: Pair[str, Order, Customer | None], state: Shop, out: Out) -> None:
    out.send(named, key=pair.key, value=(pair.right.name if pair.right else "", pair.left.amount))


@shop.join(payments, orders, how="left", name="settle", within_ms=1_000, grace_ms=0, stores=("paid", "ordered"))
def settle(pair: Pair[str, Payment, Order | None], state: Shop, out: Out) -> None:
    out.send(named, key=pair.key, value=("", pair.left.amount - (pair.right.amount if pair.right else 0)))


@shop.timer("remind")
def remind(timer: Timer[str], state: Shop, out: Out) -> None:
    out.send(named, key=timer.key, value=("", timer.at_ms))


@shop.call(timeout_ms=1_000, result=json(int))
async def geocode(call: Call[str, str]) -> int:
    return len(call.request)


@geocode.handler
def on_place(answer: Record[str, Answer[str, int]], state: Shop, out: Out) -> None:
    out.send(
        named, key=answer.key, value=(answer.value.request, 0 if answer.value.result is None else answer.value.result)
    )


def by_hand(records: list[Record[str, Payment]]) -> Expected:
    totals: dict[str, Account] = {}
    for each in records:
        totals.setdefault(each.key, Account()).balance += each.value.amount
    return Expected(state=totals, outputs={balances: totals.items()})


if TYPE_CHECKING:

    async def embedded() -> None:
        async with running(app, settings) as service:
            assert_type(service, Service[MapState[str, Account]])
            assert_type(service.view(0), MapView[str, Account])
            assert_type(service.view(0)["ada"], Account)
            assert_type(service.views(), dict[int, MapView[str, Account]])
            accounts: Mapping[str, Account] = service.view(0)
            del accounts
        async with running(shop, settings) as stores:
            assert_type(stores.view(0), StoresView[Shop])
            assert_type(stores.view(0).of(lambda s: s.accounts), MapView[str, Account])

    async def tested(real: RealHarness[MapState[str, Account]], made: RealHarness[Shop]) -> None:
        assert_type(Harness(app).view(), MapView[str, Account])
        assert_type(Harness(shop).view(), StoresView[Shop])
        assert_type(await real.view(), MapView[str, Account])
        assert_type(await made.view(1), StoresView[Shop])
        assert_type(names, Table[str, Customer])
        samples = [record(payments, key="ada", value=Payment(5))]
        check(shop, samples, calls={geocode: {"ada": 1}})
        check_upgrade(app, app, samples, add=[orders, "customers"], retire=())
        async with real_harness(app, partitions=4, processes=2, standbys=1, seed=5) as harness:
            assert_type(harness, RealHarness[MapState[str, Account]])
            await harness.feed_all(samples, kills=2)
            await harness.compare(by_hand)
