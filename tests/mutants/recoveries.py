"""Rules of a recovery: fence, claim, locate, load, advance, check."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RECOVERER = "tests/service/recovery/test_driver.py"
CLAIMING = "tests/service/publish/test_claim.py"
INCREMENTS = "tests/service/topics/test_increments.py"
CORE = "tests/service/core/test_recovery.py"
READER = "tests/service/kafka/test_reader.py"
CHANGED_CODE = (
    "tests/service/recovery/test_comparison.py",
    "tests/attacks/test_b17_changed_code.py",
)

HEALING = "tests/service/core/test_healing.py"
CUSTODY = "tests/service/core/test_custody.py"
ONLY_COPY = "tests/attacks/test_b17_the_only_copy.py"

MUTANTS = (
    Mutant(
        "healed-by-anybody",
        "who is not the last one that fenced does not write the state in its memory",
        "service/core/custody.py",
        "Verdict.ONLY_COPY if kept.unbroken else Verdict.DISPUTED",
        "Verdict.ONLY_COPY",
        (CUSTODY, HEALING),
    ),
    Mutant(
        "let-go-unproven",
        "no state in memory is dropped while no proven copy of it is in the log",
        "service/partition/memory.py",
        "        return None if outcome is None else outcome is Verdict.LEADS_ON",
        "        return True",
        ("tests/service/partition/test_memory.py", ONLY_COPY),
    ),
    Mutant(
        "doubt-taken-for-done",
        "a batch whose outputs were aborted is not merged",
        "service/core/recovery.py",
        "Warm.MERGED if event.committed else Warm.DROPPED",
        "Warm.MERGED",
        (HEALING,),
    ),
    Mutant(
        "ending-of-another",
        "how far a transaction came is not told by the one before it",
        "service/live/committer.py",
        "self._producer.ending if self._is_begun else Ending(asked=False)",
        "self._producer.ending",
        ("tests/service/live/test_committer.py",),
    ),
    Mutant(
        "old-pointers-carried-on",
        "a pointer into a T-QuanLiang that is gone does not survive in the chain",
        "service/core/chain.py",
        "[] if self.pointers_gone else self.last.pointers",
        "self.last.pointers",
        (ONLY_COPY,),
    ),
    Mutant(
        "stale-witness",
        "who lacks what a manifest proves to be committed cannot say that nobody came after us",
        "service/recovery/driver.py",
        "error.increment_offset if isinstance(error, LogCut) else NO_OFFSET",
        "NO_OFFSET",
        ("tests/attacks/test_a3_no_new_app_by_accident.py",),
    ),
    Mutant(
        "no-fence",
        "the transactional id is of app and partition, so that its start fences every older owner",
        "snapreplay/app/names.py",
        '    return f"{app_id}-{partition}"',
        '    import uuid\n\n    return f"{app_id}-{partition}-{uuid.uuid4().hex}"',
        ("tests/simulation", RECOVERER),
    ),
    Mutant(
        "no-claim",
        "a claim is committed after the fence, and searched for at its own offset",
        "service/core/recovery.py",
        "            return _fenced(recovery, event), WriteClaim()",
        "            return replace(recovery, phase=Phase.LOCATING, owner_epoch=0), SeeClaim(\n"
        '                "", 0, fresh_client=False\n            )',
        (CORE, RECOVERER),
    ),
    Mutant(
        "claim-not-waited-for",
        "the reader must deliver the claim before anything else it says is believed",
        "service/publish/claim.py",
        "        if bounds.end_offset > effect.offset:\n            record = await reader.read_at(",
        "        if bounds.end_offset <= effect.offset:\n"
        "            return events.ClaimSeen(bounds.start_offset, None)\n"
        "        if bounds.end_offset > effect.offset:\n            record = await reader.read_at(",
        (CLAIMING, "tests/simulation"),
    ),
    Mutant(
        "foreign-claim-taken-for-ours",
        "the record at the claim's offset must carry the claim's id",
        "service/publish/claim.py",
        "claim.claim_id != effect.claim_id",
        "not claim.claim_id",
        (CLAIMING,),
    ),
    Mutant(
        "no-window-beyond-end-minus-2",
        "windows grow backwards until the last increment is found",
        "service/core/search.py",
        "    return _window(claim_offset, window.start_offset, window.reach * GROWTH, log_start_offset)",
        "    return None",
        ("tests/service/core/test_search.py", "tests/log_tail"),
    ),
    Mutant(
        "windows-leave-a-gap",
        "each window ends where the one before it began",
        "service/core/search.py",
        "    return _window(claim_offset, window.start_offset, window.reach * GROWTH, log_start_offset)",
        "    return _window(\n"
        "        claim_offset, window.start_offset - 1, window.reach * GROWTH, log_start_offset\n    )",
        ("tests/service/core/test_search.py", "tests/log_tail"),
    ),
    Mutant(
        "first-increment-of-the-window",
        "the last increment before the claim counts, not the first one found",
        "service/topics/increments.py",
        '            if kind_of(record.value or b"") is RecordKind.INCREMENT:\n                candidate, behind',
        '            if candidate is None and kind_of(record.value or b"") is RecordKind.INCREMENT:\n'
        "                candidate, behind",
        (INCREMENTS, RECOVERER),
    ),
    Mutant(
        "equal-instead-of-at-least",
        "done means position >= end: a position passes markers and may pass the end",
        "service/kafka/reader.py",
        "        while position < end_offset:",
        "        while position != end_offset:",
        (READER,),
    ),
    Mutant(
        "corrupt-poll-without-a-new-client",
        "a client that met a damaged batch may have passed what it did not give out: a new one begins at our positions",
        "service/kafka/reader.py",
        "            self._damaged.met()\n"
        "            # At our positions: the client may have passed records that it did not return.\n"
        "            await self._renew()\n",
        "            self._damaged.met()\n",
        ("tests/service/kafka/test_corrupt_batches.py",),
    ),
    Mutant(
        "an-empty-poll-is-the-end",
        "an empty poll says nothing: aborted records, markers and slow brokers give none",
        "service/kafka/reader.py",
        "            if records:\n                yield records\n            if self.position",
        "            if not records:\n                return\n            yield records\n            if self.position",
        (READER,),
    ),
    Mutant(
        "records-beyond-the-end",
        "what lies at or behind end_offset is not part of what was asked for",
        "service/kafka/reader.py",
        "                records = [record for record in records if record.offset < end_offset]\n",
        "                pass\n",
        (READER, INCREMENTS),
    ),
    Mutant(
        "read-uncommitted",
        "the log and the inputs are read with read_committed",
        "service/kafka/config.py",
        '"read_committed" if read_committed else "read_uncommitted"',
        '"read_uncommitted"',
        (READER,),
    ),
    Mutant(
        "offset-reset-earliest",
        "a position out of range is an error, never a silent jump",
        "service/kafka/config.py",
        '        "auto_offset_reset": "none",',
        '        "auto_offset_reset": "earliest",',
        (READER,),
    ),
    Mutant(
        "digest-unchecked-by-batch",
        "advancing compares the digest after every batch, and names the first that differs",
        "service/recovery/comparison.py",
        "        if recorded is not None and self.computed == recorded:\n",
        "        if recorded is not None:\n",
        ("tests/service/recovery/test_advance.py",),
    ),
    Mutant(
        "digest-unchecked-at-the-end",
        "LIVE only with the digest of the last increment",
        "service/recovery/advance.py",
        "    if computed != last.digest:\n",
        "    if computed is None:\n",
        ("tests/service/recovery/test_advance.py", RECOVERER),
    ),
    Mutant(
        "outputs-uncompared",
        "a replay sends what was committed, batch by batch",
        "service/recovery/comparison.py",
        "        if computed == place.increment.outputs_xxh64:\n",
        "        if computed is not None:\n",
        CHANGED_CODE,
    ),
    Mutant(
        "changed-code-believed-behind-the-last-digest",
        "outputs say nothing about what was remembered: changed code is believed up to the last digest",
        "service/recovery/comparison.py",
        "        error = self._differs or self._unproven\n",
        "        error = self._differs\n",
        CHANGED_CODE,
    ),
    Mutant(
        "helper-modules-uncovered",
        "the version covers every module of the author's that the app imports",
        "snapreplay/app/user_modules.py",
        "        waiting += imported\n",
        "",
        ("tests/snapreplay/app/test_user_modules.py",),
    ),
    Mutant(
        "no-digest-of-a-state-that-keeps-none",
        "a state that is no map is hashed every so many batches and at a graceful end",
        "service/live/state_digests.py",
        "        digest = await run_cooperatively(self._store.digesting())\n",
        "        digest = None\n",
        ("tests/service/live/test_state_digests.py", "tests/service/recovery/test_replay.py"),
    ),
    Mutant(
        "snapshot-sums-unchecked",
        "a snapshot adds up to what its manifest says",
        "service/topics/snapshots.py",
        "    if sums != manifest.entries_digest:",
        "    if sums is None:",
        ("tests/service/topics/test_snapshots.py",),
    ),
    Mutant(
        "skip-list-ignored",
        "replay skips exactly what the increment lists",
        "service/recovery/replay.py",
        "            records += without_skipped(await cursor.take(part), increment.skipped)",
        "            records += await cursor.take(part)",
        ("tests/service/recovery/test_replay.py",),
    ),
    Mutant(
        "record-count-unchecked",
        "a range must still hold as many records as were processed",
        "service/recovery/replay.py",
        "    if len(records) != part.record_count:",
        "    if len(records) > part.record_count:",
        ("tests/service/recovery/test_replay.py", "tests/attacks/test_a4_the_same_input.py"),
    ),
    Mutant(
        "anchor-unchecked",
        "the input still holds the record that was processed last",
        "service/recovery/inputs.py",
        "(Witness.SAME if found == anchor else Witness.OTHER)",
        "Witness.SAME",
        ("tests/service/recovery/test_inputs.py",),
    ),
    Mutant(
        "state-not-written-before-its-input-is-given-up",
        "a state in memory that only a replay leads to is written before its input is given up",
        "service/core/recovery.py",
        "if recovery.kept is not None and is_ahead(recovery.kept.last):",
        "if recovery.kept is None and is_ahead(_some(recovery.last).increment):",
        ("tests/service/core/test_healing.py",),
    ),
    Mutant(
        "cancellation-lost",
        "a task that waits for an event ends when it is told to, also as the event comes",
        "service/runtime/tasks.py",
        "        async with asyncio.timeout(seconds):\n            await event.wait()\n",
        "        await asyncio.wait_for(event.wait(), seconds)\n",
        ("tests/service/runtime/test_tasks.py",),
    ),
    Mutant(
        "own-decision-ends-the-log",
        "what an owner had committed before it wrote its memory down is the same input",
        "service/decisions/common_prefix.py",
        "return increment.begins_anew and not increment.begun_by_owner",
        "return increment.begins_anew",
        ("tests/service/decisions/test_common_prefix.py",),
    ),
    Mutant(
        "skipped-record-no-anchor",
        "a dead-lettered record is a part of the log that was processed",
        "snapreplay/app/input_ranges.py",
        "        self._last[topic] = record\n        self._skipped",
        "        self._skipped",
        ("tests/snapreplay/app/test_input_ranges.py",),
    ),
    Mutant(
        "trimmed-input-jumped-over",
        "an input trimmed beyond our position is never skipped silently",
        "service/recovery/inputs.py",
        "    if position < bounds.start_offset:\n        raise InputTrimmed(",
        "    if position < 0:\n        raise InputTrimmed(",
        ("tests/service/recovery/test_inputs.py",),
    ),
    Mutant(
        "broken-link-accepted",
        "each increment names its predecessor and counts one further",
        "service/topics/increments.py",
        "            _check_link(log, step, batch, previous_offset)\n",
        "",
        (INCREMENTS,),
    ),
)
