"""Everything that must hold at the end, asked of Kafka, of the service and of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from examples.demo import reading, verify
from examples.demo.failed import DemoFailed
from examples.demo.names import PARTITIONS, Names
from examples.demo.record import RunLog, Verdict
from examples.demo.service_process import ServiceProcess
from examples.demo.spark_job import NotFinished, SparkJob
from examples.demo.verify import Checked, Findings, Truth


def judge(
    bootstrap_servers: str,
    names: Names,
    run_log: RunLog,
    digests: Mapping[int, str | None],
    tell: Callable[[str], None],
) -> list[Verdict]:
    """Judge by brute force, from input, outputs and the digests that the service reports.

    Args:
        tell: called with what is being done, because it takes some seconds.

    Raises:
        DemoFailed: a topic could not be read.
    """
    tell(f"folding {run_log.records:,} records from {names.input_topic} by brute force")
    truth = verify.fold(reading.inputs(bootstrap_servers, names.input_topic))
    tell(f"comparing each output in {names.output_topic}")
    checked = verify.check_outputs(truth, reading.outputs(bootstrap_servers, names.output_topic))
    tell("counting the outputs of killed transactions")
    hidden = reading.written(bootstrap_servers, names.output_topic) - checked.count
    return [
        _exactly_once(truth, checked, run_log.records, hidden),
        Verdict.of(
            "final state",
            verify.check_final_state(truth, checked.last),
            f"{len(checked.last):,} keys as by brute force",
        ),
        Verdict.of(
            "digest",
            verify.check_digests(truth, digests),
            f"{len(digests)} partitions: the service's equals the one of the brute-force state",
        ),
    ]


def _exactly_once(truth: Truth, checked: Checked, records: int, hidden: int) -> Verdict:
    """Judge the outputs; `hidden` ones are in the topic, but in transactions that were never committed."""
    findings = checked.findings
    if len(truth.outputs) != records:
        findings.add(f"{len(truth.outputs):,} input records, but {records:,} were loaded")
    return Verdict.of(
        "exactly once",
        findings,
        f"{checked.count:,} outputs for {records:,} records, in order, contents as by brute force;"
        f" {hidden:,} of killed transactions stay invisible",
    )


def recoveries(run_log: RunLog) -> Verdict:
    """Say whether each recovery has a proof and used the mode that was asked for."""
    findings = Findings()
    for number, restart in enumerate(run_log.restarts, 1):
        back = restart.comeback
        if back is None:
            continue
        if back.proven != PARTITIONS:
            findings.add(f"restart {number}: {back.proven} of {PARTITIONS} digests proven")
        if set(back.modes) != {restart.kill.mode}:
            findings.add(f"restart {number}: asked for {restart.kill.mode}, went {back.modes}")
    came = [restart for restart in run_log.restarts if restart.comeback is not None]
    if not came:
        findings.add("no recovery was completed")
    modes = " and ".join(sorted({restart.kill.mode for restart in came}))
    return Verdict.of("recovery", findings, f"{len(came)} proven by digest, by {modes}")


def taken_over(run_log: RunLog) -> Verdict:
    """Say whether the standby resumed from what the dead owner had, each digest compared."""
    findings = Findings()
    if run_log.takeover is None or not run_log.takeover.moved:
        findings.add("the killed process owned no partition")
        return Verdict.of("takeover", findings, "")
    for number in sorted(run_log.takeover.moved - run_log.takeover.proven):
        findings.add(f"partition {number}: no digest was compared")
    detail = (
        f"{1000 * run_log.takeover.seconds:,.0f} ms after SIGKILL the standby was LIVE with"
        f" {len(run_log.takeover.moved)} partitions of the dead owner, digests as it had recorded them"
    )
    return Verdict.of("takeover", findings, detail)


def stopped(service: ServiceProcess) -> Verdict:
    """Say whether it ends as it must on SIGTERM."""
    try:
        service.stop()
    except DemoFailed as failed:
        return Verdict("SIGTERM", holds=False, detail=str(failed))
    return Verdict("SIGTERM", holds=True, detail="ended with exit code 0")


def compacted(run_log: RunLog) -> list[Verdict]:
    """Say whether the owner adopted what Spark proposed, and the next restore began there."""
    if run_log.not_compacted:
        return [Verdict("compaction", holds=False, detail=run_log.not_compacted)]
    findings = Findings()
    adopted = [each for each in run_log.adoptions if not each.why]
    for each in run_log.adoptions:
        if each.why:
            findings.add(f"partition {each.partition}: {each.why}")
    if not run_log.killed_in_time:
        findings.add("Spark had ended before the service was killed")
    if len(run_log.adoptions) != PARTITIONS:
        findings.add(f"{len(run_log.adoptions)} of {PARTITIONS} partitions reported")
    entries = sum(each.entries for each in adopted)
    batches = ", ".join(str(each.batch) for each in adopted)
    detail = (
        f"{len(adopted)} snapshots by Spark while the service was killed, adopted by the owner:"
        f" batches {batches}, {entries:,} entries hashed"
    )
    return [Verdict.of("compaction", findings, detail), _began_there(run_log)]


def _began_there(run_log: RunLog) -> Verdict:
    began = run_log.from_adopted.snapshots if run_log.from_adopted else {}
    findings = Findings()
    for each in run_log.adoptions:
        if each.why or began.get(each.partition) != each.snapshot_id:
            findings.add(
                f"partition {each.partition} began at snapshot {began.get(each.partition)},"
                f" not at an adopted one ({each.snapshot_id or 'none'})"
            )
    if not run_log.adoptions:
        findings.add("no snapshot was adopted")
    return Verdict.of("restore", findings, f"{len(began)} partitions began at the adopted snapshot")


def audited(audit: SparkJob, tell: Callable[[str], None]) -> Verdict:
    """Judge the audit; an unfinished one does not hold, and does not hide what the others found.

    Raises:
        DemoFailed: its report contradicts its exit code.
    """
    try:
        findings, looked_at = read_report(*audit.result(tell))
    except NotFinished as error:
        return Verdict("Spark audit", holds=False, detail=f"not finished: {error}")
    return Verdict.of("Spark audit", findings, looked_at)


def read_report(said: str, code: int) -> tuple[Findings, str]:
    """Return findings and a summary, from what the command printed and its exit code.

    Raises:
        DemoFailed: there is no report, or code and report contradict each other.
    """
    try:
        report: dict[str, Any] = json.loads(said)
        found: list[dict[str, Any]] = report["findings"]
        checked: dict[str, int] = report["checked"]
    except (ValueError, KeyError) as error:
        raise DemoFailed(f"the audit ended with {code} but printed no report: {said!r}") from error
    if bool(found) != bool(code) or not checked:
        raise DemoFailed(f"the audit ended with {code}, but its report says: {said}")
    findings = Findings()
    for each in found:
        place = f"{each['topic']}-{each['partition']} offset {each['offset']}"
        findings.add(f"{each['check']}: {place}: {each['detail']}")
    if not checked.get("records_replayed"):
        findings.add("no record was replayed")
    return findings, ", ".join(f"{count:,} {name}" for name, count in checked.items() if count)
