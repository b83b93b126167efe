"""Test an app: without a broker (`Harness`, `Pipeline`, `check`, `check_upgrade`), and on a real one (`real_harness`).

def test_ledger():
    harness = Harness(app)
    harness.feed(payments, key="ada", value={"amount": 5})
    harness.crash()
    assert harness.outputs(balances)[-1].value == {"balance": 5}
    check(app, [record(payments, key=k, value={"amount": n}) for k, n in samples])

`real_harness`, `RealHarness` and `broker` are imported at their first use, because they need the Kafka client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Diverged, Harness, LostChange
from snapreplay.app.made_record import Sent, record, record_raw
from snapreplay.testing.checks import Report, check
from snapreplay.testing.expected import Expected
from snapreplay.testing.pipeline import Pipeline
from snapreplay.testing.upgrades import UpgradeReport, check_upgrade

if TYPE_CHECKING:
    from snapreplay.testing.real import RealHarness, Received, broker, real_harness
    from snapreplay.testing.service_process import ServiceEnded

__all__ = [
    "Diverged",
    "ErrorPolicy",
    "Expected",
    "Harness",
    "LostChange",
    "Pipeline",
    "RealHarness",
    "Received",
    "Report",
    "Sent",
    "ServiceEnded",
    "UpgradeReport",
    "broker",
    "check",
    "check_upgrade",
    "real_harness",
    "record",
    "record_raw",
]

_ON_A_BROKER = ("RealHarness", "Received", "ServiceEnded", "broker", "real_harness")


def __getattr__(name: str) -> Any:
    if name not in _ON_A_BROKER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.real")
    globals().update((each, getattr(module, each)) for each in _ON_A_BROKER)
    return globals()[name]
