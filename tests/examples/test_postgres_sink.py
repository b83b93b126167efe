"""postgres_sink.py on a real Postgres."""

import importlib
import operator
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from snapreplay import Call, CallRefused
from snapreplay.testing import Harness, RealHarness
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.postgres import Postgres, postgres

asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is missing: `make setup` installs it")
postgres_sink = importlib.import_module("examples.postgres_sink")


@pytest.fixture
def database() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def module(database: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The app as a module that knows the database."""
    with monkeypatch.context() as patched:
        patched.setenv("DATABASE_URL", database.url)
        yield importlib.reload(postgres_sink)
    importlib.reload(postgres_sink)


@asynccontextmanager
async def connected(database: Postgres) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database.url)
    try:
        await connection.execute(postgres_sink.SCHEMA)
        yield connection
    finally:
        await connection.close()


async def balances(connection: Any) -> dict[str, int]:
    return dict(await connection.fetch("SELECT account, cents FROM balances"))


async def test_a_call_that_comes_again_changes_nothing(database: Postgres, module: ModuleType) -> None:
    """What does not fit into the column is refused for good, and books nothing."""
    async with connected(database) as connection:
        assert [await module.book.function(Call("a/0", "ada", 5)) for _ in range(3)] == [True, False, False]
        assert await module.book.function(Call("b/0", "ada", 7))
        with pytest.raises(CallRefused):
            await module.book.function(Call("c/0", "ada", 1 << 70))
        assert await balances(connection) == {"ada": 12}
        assert await connection.fetchval("SELECT count(*) FROM booked") == 2


def test_a_refused_payment_is_kept_for_a_person() -> None:
    answers = {postgres_sink.book: {"ada": True, "bob": CallRefused("too large")}}
    harness = Harness(postgres_sink.app, calls=answers)
    harness.feed(postgres_sink.payments, key="ada", value=5)
    harness.feed(postgres_sink.payments, key="bob", value=7)
    assert list(harness.state.values()) == ["CallRefused: too large"]


@pytest.mark.timeout(600)
async def test_each_payment_is_booked_once(
    broker: Any, unique: Callable[[str], str], database: Postgres, module: ModuleType
) -> None:
    """Six SIGKILLs of the service and two crashes of Postgres while payments are booked."""
    dice, expected, count = random.Random(5), Counter[str](), 0
    prefix = f"{unique('sink')}-"

    async def booked() -> int:
        async with connected(database) as connection:
            found: int = await connection.fetchval("SELECT count(*) FROM booked")
            return found

    async with RealHarness(module.app, broker, partitions=2, prefix=prefix, deadline_s=scaled(90)) as harness:
        for turn in range(6):
            if turn in (1, 4):
                database.stop()
            for _ in range(40):
                account, cents = f"a{dice.randrange(9)}", dice.randrange(1000)
                await harness.feed(module.payments, key=account, value=cents)
                expected[account] += cents
                count += 1
            if turn in (1, 4):
                database.start()
            some = count - dice.randrange(40)
            await until_async(booked, partial(operator.le, some))
            await harness.restart()
        await until_async(booked, partial(operator.le, count))
        await harness.caught_up()
        async with connected(database) as connection:
            assert await balances(connection) == expected
        assert await booked() == count
