"""Names in Kafka, derived from the app id and never configurable: two owners must meet at the same
name. Pure.
"""

from __future__ import annotations

OWN_SUFFIXES = ("increments", "snapshots", "status", "control", "dead-letters")
"""An app's input or output may not be called `<app_id>-` and one of these. Status and control are
reserved: nothing writes them yet.
"""


def increments_topic(app_id: str) -> str:
    """T-ZengLiang."""
    return f"{app_id}-increments"


def snapshots_topic(app_id: str) -> str:
    """T-QuanLiang."""
    return f"{app_id}-snapshots"


def dead_letters_topic(app_id: str) -> str:
    return f"{app_id}-dead-letters"


def transactional_id(app_id: str, partition: int) -> str:
    """Of app id and partition, nothing else: whoever owns the partition fences all who did."""
    return f"{app_id}-{partition}"
