"""Test an app: without a broker (`Harness`, `check`, `check_upgrade`), and on a real one (`broker`, `RealHarness`).

def test_ledger():
    harness = Harness(app)
    harness.feed(payments, key="ada", value={"amount": 5})
    harness.crash()
    assert harness.outputs(balances)[-1].value == {"balance": 5}
    check(app, [record(payments, key=k, value={"amount": n}) for k, n in samples])

`broker` and `RealHarness` are imported at their first use, because they need the Kafka client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Diverged, Harness
from snapreplay.app.lost_change import LostChange
from snapreplay.app.made_record import Sent, record, record_raw
from snapreplay.testing.checks import Report, check
from snapreplay.testing.upgrades import UpgradeReport, check_upgrade

if TYPE_CHECKING:
    from snapreplay.testing.real_harness import RealHarness, Received, ServiceEnded, broker

__all__ = [
    "Diverged",
    "ErrorPolicy",
    "Harness",
    "LostChange",
    "RealHarness",
    "Received",
    "Report",
    "Sent",
    "ServiceEnded",
    "UpgradeReport",
    "broker",
    "check",
    "check_upgrade",
    "record",
    "record_raw",
]

_HOME = {
    "RealHarness": "real_harness",
    "Received": "real_harness",
    "ServiceEnded": "real_harness",
    "broker": "real_harness",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
