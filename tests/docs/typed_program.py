"""A program as a user writes it: `make check` proves its types with mypy, by hand it was checked with pyright, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_type

import msgspec

from snapreplay import (
    App,
    BatchSettings,
    HttpSettings,
    MapState,
    MapView,
    Out,
    Record,
    Service,
    Settings,
    Stores,
    StoresView,
    Topic,
    View,
    json,
    running,
)
from snapreplay.testing import Harness, RealHarness


class Payment(msgspec.Struct):
    amount: int


class Account(msgspec.Struct):
    balance: int = 0


class Tape:
    def snapshot(self) -> list[tuple[bytes, bytes]]:
        return []

    def restore(self, entries: object) -> None:
        del entries


payments = Topic("payments", value=json(Payment))
balances = Topic("balances", value=json(Account))
app = App("ledger", inputs=[payments], outputs=[balances], state=lambda: MapState(str, Account, default=Account))
tape = App("tape", inputs=[payments], state=Tape)
settings = Settings(
    kafka={"bootstrap.servers": "127.0.0.1:9092"}, http=HttpSettings(port=0), batch=BatchSettings(records_max=100)
)


@app.handler(payments)
def on_payment(record: Record[str, Payment], state: MapState[str, Account], out: Out) -> None:
    account = state[record.key]
    account.balance += record.value.amount
    out.send(balances, key=record.key, value=account)


class Shop(Stores):
    def __init__(self) -> None:
        self.accounts = MapState(str, Account)


shop = App("shop", inputs=[payments], state=Shop)


if TYPE_CHECKING:

    async def embedded() -> None:
        async with running(app, settings) as service:
            assert_type(service, Service[MapState[str, Account]])
            assert_type(service.view(0), MapView[str, Account])
            assert_type(service.view(0)["ada"], Account)
            assert_type(service.views(), dict[int, MapView[str, Account]])
            accounts: Mapping[str, Account] = service.view(0)
            del accounts
        async with running(tape, settings) as taped:
            assert_type(taped.view(0), View[Tape])
        async with running(shop, settings) as stores:
            assert_type(stores.view(0), StoresView[Shop])
            assert_type(stores.view(0).of(lambda s: s.accounts), MapView[str, Account])

    async def tested(real: RealHarness[MapState[str, Account]], made: RealHarness[Shop]) -> None:
        assert_type(Harness(app).view(), MapView[str, Account])
        assert_type(Harness(shop).view(), StoresView[Shop])
        assert_type(Harness(tape).view(), View[Tape])
        assert_type(await real.view(), MapView[str, Account])
        assert_type(await made.view(1), StoresView[Shop])
