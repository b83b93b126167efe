"""A running total per key by Quix Streams, exactly once: `quix_total.py SERVERS APP INPUT OUTPUT STATE_DIR SESSION_MS`.

Runs with the Python of Quix's own environment.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State


def total(payment: dict[str, Any], state: State) -> dict[str, int]:
    count, amount = state.get("account", (0, 0))
    account = count + 1, amount + payment["amount"]
    state.set("account", account)
    return {"count": account[0], "sum": account[1], "last_ts": payment["ts"]}


def main(servers: str, app_id: str, input_topic: str, output_topic: str, state_dir: str, session_ms: str) -> None:
    timeouts = {"session.timeout.ms": int(session_ms), "heartbeat.interval.ms": int(session_ms) // 6}
    app = Application(
        broker_address=servers,
        consumer_group=app_id,
        state_dir=state_dir,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        consumer_extra_config=timeouts,
    )
    payments = app.topic(input_topic, key_deserializer="str", value_deserializer="json")
    balances = app.topic(output_topic, key_serializer="str", value_serializer="json")
    app.dataframe(payments).apply(total, stateful=True).to_topic(balances)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
