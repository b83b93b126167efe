"""Accepting a finding: the partition is examined again, then a fenced increment records the decision.

The increment begins the chain anew: it points to a full snapshot of the accepted state, written under the same claim,
and nothing before it is ever walked over again. Until it is committed nothing has changed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from snapreplay.app.app import App
from snapreplay.errors import StopError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions.baseline import Baseline, ground_of
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.state import Begun, by_whom, publish
from snapreplay.service.recovery.acceptable_failures import command, findings_of
from snapreplay.service.recovery.examine import Examiner, News, OnNews
from snapreplay.service.runtime.context import Context, Identity
from snapreplay.state.contract import Store

INSTANCE_ID = "snapreplay-accept"
"""In the claim: tells a fenced owner that no process of the service fenced it."""


class NotTheFinding(UsageError):
    """The finding that was to be accepted is not the present one.

    Safe: Nothing was written, and no owner was fenced.
    """


class NotAcceptable(StopError):
    """The error cannot be accepted; its own hint says what helps.

    Safe: Nothing was written, and no owner was fenced.
    """


@dataclass(frozen=True)
class Acceptance:
    """The work of `carry_out`: `plan` in sentences, `decision` as it would be recorded. `store` holds the state of
    `ground`, `end_offset` is the end of the increments topic as far as it was examined."""

    plan: tuple[str, ...]
    decision: dict[str, str]
    context: Context
    store: Store
    ground: Baseline
    end_offset: int


async def propose(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    partition: int,
    finding_id: str,
    reason: str,
    on_news: OnNews = lambda _: None,
) -> Acceptance:
    """Find out the present finding, and what accepting it means. Only reads; `on_news` hears how far it is.

    Raises:
        UsageError: no such partition, or no reason.
        NotTheFinding: another finding, or none, is the matter.
        NotAcceptable, NoBaseline: no acceptance would help.
        OlderState: this version of the app upgrades the state first.
    """
    if not reason.strip():
        raise UsageError("no reason was given", hint="give --reason TEXT: it is recorded in the log")
    view = await inspect(app, settings, cluster)
    if not 0 <= partition < view.partition_count:
        raise UsageError(
            f"partition {partition} does not exist: there are {view.partition_count} (0 to {view.partition_count - 1})"
        )
    identity = Identity.of_this_process(INSTANCE_ID)
    context = Context(app, settings, cluster, view, identity, partition, asyncio.Semaphore(1))
    examiner = Examiner(context, app.new_store(), News(on_news))
    try:
        return await _acceptance(context, examiner, finding_id, reason.strip())
    finally:
        await examiner.close()


async def _acceptance(context: Context, examiner: Examiner, finding_id: str, reason: str) -> Acceptance:
    error = await examiner.examine_beside_owner()
    if error is None:
        raise NotTheFinding(
            f"partition {context.partition} has no finding, a recovery would go LIVE: {finding_id} cannot be accepted",
            hint="restart the service, with the same settings as this command",
        )
    examiner.refuse_older()
    findings = findings_of(error, context, examiner.last)
    if not findings:
        raise NotAcceptable(
            f"partition {context.partition}: {type(error).__name__} cannot be accepted: {error.message}",
            hint=error.hint,
        )
    finding = next((each for each in findings if each.id == finding_id), findings[0])
    ground = await ground_of(context, examiner, finding)  # before a command is printed that could not succeed
    if finding.id != finding_id:
        raise NotTheFinding(
            f"partition {context.partition}: asked to accept {finding_id}, but the finding is {finding.id}:"
            f" {error.message}",
            hint=f"to accept that one: `{command(finding, context)}`: {finding.way}",
            given=finding_id,
            found=finding.id,
        )
    plan = (
        *ground.plan,
        f"a full snapshot of this state is written, and increment {ground.increment.batch + 1} records the decision"
        " and points to it; a running owner of the partition is fenced",
    )
    decision = {
        "finding": finding_id,
        "problem": f"{type(error).__name__}: {error.message}",
        "decided": "; ".join(ground.plan),
        "reason": reason,
        "by": by_whom(),
    }
    return Acceptance(plan, decision, context, examiner.store, ground, examiner.end_offset)


async def carry_out(acceptance: Acceptance) -> Begun:
    """Fence, claim, write the snapshot, commit the decision.

    Raises:
        LogWentOn, Superseded, Fenced, CommitInDoubt, Unreachable: as `publish`.
    """
    return await publish(
        acceptance.context, acceptance.store, acceptance.ground.increment, acceptance.decision, acceptance.end_offset
    )
