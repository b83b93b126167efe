"""Examples of the answers in docs/openapi.json. In all of them partition 0 is live in this process, and 1 is loading in
another one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from snapreplay.api import fleet_views, last_hour_view, operation_views, state_views, views
from snapreplay.api.last_hour import EVERY_SECONDS, Row
from snapreplay.api.operation_views import joined
from snapreplay.api.peers import Known
from snapreplay.service.config.settings import SettingShown
from snapreplay.service.control.input_status import InputStatus
from snapreplay.service.control.key_history import KeyChange, KeyHistory, ReadKeyHistory, ReadRecords
from snapreplay.service.control.partition_history import Ownership, PartitionHistory, PointedSnapshot
from snapreplay.service.control.protocol import Check, Operation, OperationPart, ServiceFacts, StatusDocument
from snapreplay.service.control.restore_plan import (
    Drill,
    Forecast,
    InputHeadroom,
    PlannedRestore,
    Rates,
    RestoreObjective,
    RestorePlan,
)
from snapreplay.service.control.savepoint_list import SavepointList, SavepointPart, SavepointShown
from snapreplay.service.control.state_reads import NotRead, PartRead, ReadAt, Role
from snapreplay.service.control.status import (
    Decision,
    DigestProof,
    PartitionStatus,
    Progress,
    Recovery,
    RejectedProposal,
    SnapshotStatus,
    SnapshotUsed,
    StoreStatus,
    ValuesRead,
)
from snapreplay.service.core.adoption import Reason
from snapreplay.service.core.group_changes import GroupChange, SeenMember
from snapreplay.service.core.liveness import PeerState
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def _ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


_DIGEST = "104729:8f14e45fceea167a:45c48cce2e2d7fbd"
_ID = "5c1dd0a4f1b24b1e"
_OPERATION = Operation(
    "019aa3c1-6a52-7d11-8f3e-0d4b6c1f2a90",
    "snapshot",
    "running",
    "before deploy 42",
    (OperationPart(0, "running"),),
    NOW,
)
_SNAPSHOT = SnapshotStatus(
    0,
    _ID,
    "pointed",
    "interval",
    4012,
    _ago(300),
    _ago(299.588),
    entries=104_729,
    chunks=6,
    size_bytes=4_718_592,
    manifest_offset=77,
    digest=_DIGEST,
)
_RECOVERY = Recovery(
    attempts=1,
    started_at=_ago(10),
    finished_at=_ago(9.69),
    mode="changes",
    snapshot=SnapshotUsed(_ID, 4012, 77, 104_729, 4_718_592, _ago(300), 6),
    seconds_per_phase={"fencing": 0.02, "claiming": 0.004, "locating": 0.03, "loading": 0.25, "advancing": 0.006},
    entries=104_750,
    proof=DigestProof(_DIGEST, _DIGEST, 107),
    forecast=Forecast(0.437, _ago(9.6)),
)
_PLAN = RestorePlan(
    "changes",
    PlannedRestore(_ID, 4012, 77, 4_718_592, 104_729, 108, 10_800, 0.544),
    (PlannedRestore("0f3b6c0d9a7e4b55", 3970, 61, 4_700_160, 104_201, 150, 15_000, 0.585),),
    {},
    (InputHeadroom("payments", 880_412, 120_000, 760_412, None),),
    Rates(measured=("before_loading_seconds",)),
    _ago(20),
)
_LIVE = PartitionStatus(
    0,
    Phase.LIVE,
    owner_epoch=9120,
    batch=4120,
    inputs=(InputStatus("payments", 880_412, 880_500, 880_500),),
    state_entries=104_801,
    state_bytes=9_437_184,
    state_largest_entry_bytes=2_310,
    stores=(
        StoreStatus("_timers", 311, 12_402, 41, 1_795_253_460_000),
        StoreStatus("default", 104_490, 9_424_782, 2_310),
    ),
    records_total=21_340,
    stream_time_ms=1_795_253_399_500,
    timers_pending=311,
    next_due_ms=1_795_253_460_000,
    timers_total=1_204,
    digest=_DIGEST,
    values_read=ValuesRead(104_750, 104_750, all_read=True),
    restore=_RECOVERY,
    snapshot=_SNAPSHOT,
    last_pointed_snapshot_at=_ago(299.588),
    recoverable=True,
    decisions=(
        Decision(
            2719,
            1209,
            "input-gap-3f9a12bc",
            "InputTrimmed: input payments-0: the next record to process is at offset 120, but the log begins at 130:"
            " 10 offsets are gone",
            "the state stays that of batch 1208; payments: goes on at offset 130;"
            " offsets 120 to 130 are never processed",
            "known outage, refunded by hand",
            "ada@host-a",
            _ago(55_669),
        ),
    ),
    rejected_proposals=(
        RejectedProposal(
            61, Reason.SUPERSEDED, f"it is of batch 3970, and snapshot {_ID} is of batch 4012", _ago(292.88)
        ),
    ),
    restore_plan=_PLAN,
    objective=RestoreObjective(3.0, 0.544, 0.436, is_met=True),
    drill=Drill(
        "succeeded", _ago(1800), _ago(1794), 4002, _ID, "changes", 104_700, _DIGEST, 0.59, 0.5, rested_seconds=5.31
    ),
    updated_at=_ago(0.5),
)
_LOADING = PartitionStatus(
    1,
    Phase.LOADING,
    owner_epoch=9044,
    restore=msgspec.structs.replace(
        _RECOVERY,
        finished_at=None,
        progress=Progress("bytes", 0, 1_048_576, 4_194_304, 20_971_520.0, 0.15),
        seconds_per_phase={"fencing": 0.02, "claiming": 0.004, "locating": 0.03},
        entries=26_182,
        proof=None,
    ),
)
_FACTS = ServiceFacts(
    "ledger", "7", "0.1.0", "ledger-0", "3f0c9f3e5d0e4b7a", "ledger-0", _ago(11), "MkU3OEVBNTcwNTJENDM2Qg", 2
)
_SETTINGS = (
    SettingShown("http.port", 8080, "default"),
    SettingShown("kafka.bootstrap.servers", "broker-1:9092", "in snapreplay.toml"),
    SettingShown("kafka.sasl.plain.password", "***", "SNAPREPLAY_KAFKA__SASL_PLAIN_PASSWORD in the environment"),
)
_PEER = Peer("b81d6a0e22c94f13", "ledger-1", "ledger-1", "http://10.0.3.17:8080", (1,))
_CHANGE = GroupChange(4, _ago(10), 2, (0,), joined=(SeenMember(_PEER.process_id, _PEER.instance_id, _PEER.host),))
_FLEET = fleet_views.fleet(
    StatusDocument(
        _FACTS, (_LIVE,), snapshots=(_SNAPSHOT,), settings=_SETTINGS, peers=(_PEER,), group_changes=(_CHANGE,)
    ),
    [
        Known(
            _PEER,
            PeerState.REACHABLE,
            _ago(10),
            "",
            StatusDocument(
                msgspec.structs.replace(
                    _FACTS, instance_id=_PEER.instance_id, process_id=_PEER.process_id, host=_PEER.host
                ),
                (_LOADING,),
            ),
        )
    ],
    0.8,
)
_COVERED = fleet_views.Covered(_FLEET, fleet_views.Scope.APP)
_SHOWN_OPERATION = joined([(_FLEET[0].process, _OPERATION)])
_PARTITION = views.partition(fleet_views.Held(0, _FLEET[0].process, _LIVE), NOW)
_READ = PartRead(
    ReadAt(0, 4120, {"payments": 880_412}, 9120, Role.OWNER, 0.0, "", _FACTS.process_id, _FACTS.host),
    (("ada", msgspec.msgpack.encode({"balance": 5})),),
)
_NOT_READ = NotRead(1, "loading", "it is loading here")
_HISTORY = PartitionHistory(
    0,
    (
        Ownership(9120, _FACTS.process_id, _FACTS.instance_id, _FACTS.host, _ago(10), 4120, _ago(0.5)),
        Ownership(8875, _PEER.process_id, _PEER.instance_id, _PEER.host, _ago(7_210), 4012, _ago(299.588)),
    ),
    (PointedSnapshot(_ID, 4012, 77, 9004, _ago(300), is_kept=True),),
    is_whole=True,
    decisions=_LIVE.decisions,
)
_KEY_HISTORY = KeyHistory(
    *(4012, 9004, 0, False),
    changes=(
        KeyChange(
            *(4120, 9127, _ago(0.5), 9120, (ReadRecords("payments", 880_400, 880_412),)),
            msgspec.msgpack.encode({"balance": 5}),
        ),
    ),
    partition_count=2,
)
_SAVEPOINT = SavepointShown(
    *("ledger", "before-42", True, "ada", "deploy 42"),
    (SavepointPart(0, 4120, 104_801, _DIGEST, {"payments": 880_412}, _ago(300)),),
)
_ROWS = {
    int(NOW.timestamp()) // EVERY_SECONDS - 2: Row(2, 2, 412.5, 0.0121, 0.048, 18_874_368.0, 0.61, 120.0),
    int(NOW.timestamp()) // EVERY_SECONDS: Row(2, 1, 205.0, 0.0134, 0.051, 9_437_184.0, 0.544, 88.0),
}
_SHOWN = (
    *(SavepointList((_SAVEPOINT,)), _SAVEPOINT),
    _FACTS,
    _SHOWN_OPERATION,
    operation_views.Operations((_SHOWN_OPERATION,)),
    _PARTITION,
    views.Partitions((_PARTITION,)),
    views.restore_status(_COVERED),
    views.restore_plans(_COVERED),
    views.config(fleet_views.Covered(_FLEET[:1], fleet_views.Scope.LOCAL)),
    views.Processes(tuple(each.process for each in _FLEET)),
    views.group_changes(fleet_views.Covered(_FLEET[:1], fleet_views.Scope.LOCAL)),
    views.snapshots(_FLEET),
    state_views.StateValues("default", "ada", state_views.values([_READ]), (0,), (_NOT_READ,)),
    _HISTORY,
    state_views.changes(ReadKeyHistory("default", "ada", 0), _KEY_HISTORY),
    last_hour_view.view(_ROWS, None, fleet_views.Scope.APP),
    state_views.entries("default", msgspec.structs.replace(_READ, next_after="ada"), 2),
)

BY_SCHEMA: dict[str, Any] = {type(each).__name__: msgspec.to_builtins(each) for each in _SHOWN}
PROBES: dict[str, Any] = {
    "200": msgspec.to_builtins(views.Probe("ok", (Check("runner loop", ok=True, detail="last turn 0.3 s ago"),))),
    "503": msgspec.to_builtins(views.Probe("failing", (Check("partition 1", ok=False, detail="loading"),))),
}
