"""Keeps balances in Postgres: each payment is booked there by a call after the commit, and takes effect once.

A call is made at least once. The transaction that books the payment also inserts the id of the call, so a second call
with this id changes nothing, whichever process makes it. A call can be repeated until its answer is handled, so keep
the rows of `booked` for longer than any outage.
"""

from __future__ import annotations

import os

import asyncpg

from snapreplay import Answer, App, Call, CallRefused, MapState, Out, Record, Topic, json

DATABASE_URL = os.environ.get("DATABASE_URL", "postgresql://127.0.0.1/postgres")
SCHEMA = """
    CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, cents bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS booked (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
"""
NOTE = "INSERT INTO booked (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id"
BOOK = """
    INSERT INTO balances VALUES ($1, $2)
    ON CONFLICT (account) DO UPDATE SET cents = balances.cents + excluded.cents
"""

payments = Topic("payments", value=json(int))
app = App("postgres-sink", inputs=[payments], outputs=[], state=lambda: MapState(str, str))


@app.call(request=json(int), result=json(bool), timeout_ms=10_000, retries=None, ordered=True)
async def book(call: Call[str, int]) -> bool:
    """Return whether this attempt has booked the payment. While Postgres is down, the call is repeated."""
    connection = await asyncpg.connect(DATABASE_URL)
    try:
        async with connection.transaction():
            is_new = await connection.fetchval(NOTE, call.id) is not None
            if is_new:
                await connection.execute(BOOK, call.key, call.request)
    except asyncpg.DataError as error:  # another attempt would be refused, too
        raise CallRefused(str(error)) from error
    finally:
        await connection.close()
    return is_new


@app.handler(payments)
def on_payment(record: Record[str, int], state: MapState[str, str], out: Out) -> None:  # noqa: ARG001 - as all handlers
    out.call(book, record.key, record.value)


@book.handler
def on_booked(record: Record[str, Answer[int, bool]], state: MapState[str, str], out: Out) -> None:  # noqa: ARG001 - as all handlers
    if record.value.error:
        state[record.value.id] = record.value.error  # for an operator
