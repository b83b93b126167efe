"""Every way in which a log can break a rule of the checker, and the rules that it breaks."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from tests.checker.forged import Body, Draft, Fault, Forgery, Owner, digest, pack, record, sent_hash
from tests.checker.verdict import Check
from tests.checker.wire import CHUNK, CLAIM

ONCE, ATOMIC, CHAIN, FENCE = Check.EXACTLY_ONCE, Check.ATOMICITY, Check.CHAIN, Check.FENCE
STATE, OUTCOMES, SNAPSHOTS, ORDER = Check.STATE, Check.OUTCOMES, Check.SNAPSHOTS, Check.ORDER


class Case(NamedTuple):
    """`breaks`: exactly these rules. `unchecked`: words of what the checker must say it could not look at."""

    fault: Fault
    breaks: frozenset[Check] = frozenset()
    unchecked: str = ""


def _case(*breaks: Check, unchecked: str = "", **fault: object) -> Case:
    return Case(Fault(**fault), frozenset(breaks), unchecked)  # type: ignore[arg-type] # one fault's fields


def _fields(**fields: object) -> Callable[[Draft], object]:
    return lambda draft: draft.increment.update(fields)


def _add(name: str, number: int) -> Callable[[Draft], object]:
    return lambda draft: draft.increment.update({name: draft.increment[name] + number})


# ------------------------------------------------------------------------------- outputs


def _second_output(draft: Draft) -> None:
    draft.outputs.append(draft.outputs[0])


def _other_content(draft: Draft) -> None:
    draft.outputs[1][1]["sum"] += 1


def _nobodys_output(draft: Draft) -> None:
    draft.outputs[0][1]["id"] = "elsewhere-0-0"


def _swapped(draft: Draft) -> None:
    draft.outputs[0], draft.outputs[1] = draft.outputs[1], draft.outputs[0]


def _early_and_again(draft: Draft) -> None:
    """The second record's output first, then one of an earlier batch, then the first record's."""
    again = dict(draft.outputs[0][1]), f"payments-{draft.owner.app_id}-{draft.owner.number}-0"
    _swapped(draft)
    draft.outputs.insert(1, (draft.outputs[0][0], again[0] | {"id": again[1]}))


def _record_left_out(draft: Draft) -> None:
    """The first record of the second input: in no range, without output, not in the count."""
    topic, start, end, _ = draft.increment["ranges"][1]
    draft.increment["ranges"][1] = [topic, start + 1, end, end - start - 1]
    draft.increment["record_count"] -= 1


def _without_an_output(draft: Draft) -> None:
    del draft.outputs[2]


def _position_too_far(draft: Draft) -> None:
    """Behind the input's end: records that do not exist yet count as processed."""
    for each in draft.increment["ranges"]:
        each[2] += 100
        draft.increment["positions"][each[0]] += 100


# --------------------------------------------------------------------------------- state


def _other_changes(draft: Draft) -> None:
    """Intact and counted right, and yet another value than was put out."""
    entries = draft.changes[0]["stores"]["default"]
    key = min(entries)
    entries[key] = entries[key][:-1] + bytes([entries[key][-1] ^ 1])


def _dead_lettered(draft: Draft) -> None:
    """The last record was skipped: as if it had never been applied."""
    key, _ = draft.outputs.pop()
    topic, _, end, _ = draft.increment["ranges"][-1]
    account = draft.owner.accounts[key]
    account["n"] -= 1
    account["sum"] += record("refunds", end - 1)[1]
    entries = draft.owner.entries
    changed = draft.changes[0]["stores"]["default"]
    changed.update({entry: entries[entry] for entry in changed})
    draft.increment |= {"skipped": [[topic, end - 1, end]], "digest": digest(entries)}
    draft.increment["record_count"] -= 1
    draft.increment["outputs"] = dict.fromkeys(draft.increment["outputs"], len(draft.outputs))
    sent = {topic: sent_hash(topic, draft.outputs) for topic in draft.increment["outputs"]}
    draft.increment["outputs_xxh64"] = sent


def _lean(draft: Draft) -> None:
    draft.changes, draft.lean = [], True


def _stray_changes(draft: Draft) -> None:
    draft.changes = [{"batch": draft.increment["batch"], "part": 0, "stores": {"default": {}}}]


def _decision(draft: Draft) -> None:
    draft.increment |= {"decision": {"finding": "f"}, "previous_offset": draft.owner.epoch}


def _behind_a_cut(finding: str) -> Callable[[Draft], object]:
    """The log is shorter than this owner knows, and the next one begins the chain anew."""

    def draft(draft: Draft) -> None:
        draft.increment["previous_offset"] = 5000
        draft.owner.fault = Fault(stage="batch4", draft=_decided(finding), journal=_no_restores)

    return draft


def _decided(finding: str) -> Callable[[Draft], object]:
    def draft(draft: Draft) -> None:
        draft.increment |= {"decision": {"finding": finding}, "previous_offset": draft.owner.epoch}

    return draft


def _begun_anew_too_early(draft: Draft) -> None:
    """Under a claim that lies before what it is to explain."""
    draft.increment["previous_offset"] = 5000
    draft.owner.fault = Fault(stage="batch6", draft=_decided("increments-replaced-1"))


def _snapshots_made_again(draft: Draft) -> None:
    """With all of them; what is written from now on is in the new topic."""
    draft.owner.topic_ids = {f"{draft.owner.app_id}-snapshots": "new"}
    draft.owner.pointers = []
    draft.increment |= {"pointers": [], "topic_ids": draft.owner.topic_ids}


def _gone_with_its_topic(draft: Draft) -> None:
    """The snapshot is not there, and neither is the topic that the next increment speaks of."""
    draft.increment["pointers"][0]["manifest_offset"] = 50
    draft.owner.fault = Fault(stage="batch4", draft=_snapshots_made_again)


def _genesis_elsewhere(draft: Draft) -> None:
    draft.increment["positions"][f"payments-{draft.owner.app_id}"] = 1


def _empty_range(draft: Draft) -> None:
    topic, _, end, _ = draft.increment["ranges"][-1]
    draft.increment["ranges"].append([topic, end, end, 0])


def _falling_position(draft: Draft) -> None:
    topic = next(iter(draft.increment["positions"]))
    draft.increment["positions"][topic] -= 1


def _flip_last(values: list[bytes]) -> list[bytes]:
    return [*values[:-1], values[-1][:-1] + bytes([values[-1][-1] ^ 1])]


# ----------------------------------------------------------------------------- snapshots


def _other_entries(values: list[bytes]) -> list[bytes]:
    """Slices whose declared sums are their own, so that only the digest of the whole can tell."""
    entries = {b"\xa1x": b"\x01"}
    sums = digest(entries)[1:]
    chunk = {"snapshot_id": "snapshot2", "sequence": 0, "store": "default"}
    return [pack(CHUNK, chunk | {"slices": [[0, *sums, entries]]}), values[1]]


def _other_sums(values: list[bytes]) -> list[bytes]:
    chunk = {"snapshot_id": "snapshot2", "sequence": 0, "store": "default"}
    return [pack(CHUNK, chunk | {"slices": [[0, 1, 2, {b"\xa1x": b"\x01"}]]}), values[1]]


def _of_another_batch(manifest: Body) -> None:
    manifest["batch"] -= 1


def _of_another_state(manifest: Body) -> None:
    manifest["digest"] = manifest["entries_digest"] = [1, 2, 3]


def _one_entry_more(manifest: Body) -> None:
    manifest["entry_count"] += 1


def _pointing(**fields: int) -> Callable[[Draft], object]:
    return lambda draft: draft.increment["pointers"][0].update(fields)


def _exchanged(draft: Draft) -> None:
    draft.increment["pointers"].reverse()


# ----------------------------------------------------------------------- what was told


def _all_committed(lines: list[Body]) -> list[Body]:
    """What was aborted was reported committed."""
    return [
        line | {"result": "committed", "offset": line["written_at"]}
        if line.get("result") == "doubt"
        else line
        for line in lines
    ]


def _refused(lines: list[Body]) -> list[Body]:
    return [*lines[:-1], lines[-1] | {"result": "refused", "offset": None}]


def _elsewhere(lines: list[Body]) -> list[Body]:
    return [*lines[:-1], lines[-1] | {"crc32": zlib.crc32(b"another record")}]


def _nowhere(lines: list[Body]) -> list[Body]:
    """At the offset of a transaction marker."""
    return [*lines[:-1], lines[-1] | {"offset": lines[-1]["offset"] + 1}]


def _no_restores(lines: list[Body]) -> list[Body]:
    return [line for line in lines if line["kind"] != "restore"]


def _restored(**fields: object) -> Callable[[list[Body]], list[Body]]:
    return lambda lines: [line | fields if line["kind"] == "restore" else line for line in lines]


# --------------------------------------------------------------------------------- trims


def _as_an_owner_trims(forgery: Forgery, owner: Owner) -> None:
    oldest = owner.pointers[-1]
    forgery.trim(f"{forgery.app_id}-increments", owner.number, oldest["increment_offset"])
    forgery.trim(f"{forgery.app_id}-snapshots", owner.number, oldest["first_chunk_offset"])


def _one_too_far(forgery: Forgery, owner: Owner) -> None:
    oldest = owner.pointers[-1]
    forgery.trim(f"{forgery.app_id}-snapshots", owner.number, oldest["first_chunk_offset"] + 1)


def _input_too(forgery: Forgery, owner: Owner) -> None:
    _as_an_owner_trims(forgery, owner)
    forgery.trim(f"payments-{forgery.app_id}", owner.number, 4)


def _up_to_claim(forgery: Forgery, owner: Owner) -> None:
    forgery.trim(f"{forgery.app_id}-increments", owner.number, owner.offsets["claim3"])


def _all(forgery: Forgery, owner: Owner) -> None:
    forgery.trim(f"{forgery.app_id}-increments", owner.number, owner.last_offset + 1)


def _some_outputs(forgery: Forgery, owner: Owner) -> None:
    forgery.trim(f"accounts-{forgery.app_id}", owner.number, 8)


_CHUNK = pack(CHUNK, {"snapshot_id": "x", "sequence": 0, "store": "default", "slices": []})


def _left_open(forgery: Forgery, owner: Owner) -> None:
    forgery.leave_open(f"{forgery.app_id}-increments", owner.number)


CASES: dict[str, Case] = {
    "nothing": _case(),
    "second output": _case(ONCE, stage="batch2", draft=_second_output),
    "output missing": _case(ONCE, ATOMIC, stage="batch2", draft=_without_an_output),
    "output of another content": _case(ONCE, ATOMIC, stage="batch2", draft=_other_content),
    "hash of other outputs": _case(ATOMIC, stage="batch2", draft=_fields(outputs_xxh64={})),
    "output of nobody": _case(ONCE, ATOMIC, stage="batch2", draft=_nobodys_output),
    "outputs swapped": _case(ORDER, stage="batch2", draft=_swapped),
    "record in no range": _case(
        ONCE, CHAIN, ATOMIC, STATE, ORDER, stage="batch2", draft=_record_left_out
    ),
    "early, and again": _case(ORDER, ONCE, stage="batch2", draft=_early_and_again),
    "position behind the input": _case(ONCE, stage="batch7", draft=_position_too_far),
    "outputs aborted": _case(ONCE, ATOMIC, stage="batch2", aborted=frozenset({"outputs"})),
    "increment aborted": _case(ATOMIC, stage="batch7", aborted=frozenset({"log"})),
    "batch left out": _case(CHAIN, stage="batch7", draft=_add("batch", 1)),
    "fork": _case(CHAIN, stage="batch2", draft=_add("previous_offset", -2)),
    "other genesis": _case(
        CHAIN,
        stage="batch7",
        draft=lambda draft: draft.increment["genesis"].update(start_offsets={}),
    ),
    "genesis missing": _case(CHAIN, stage="batch0", values=lambda v: []),
    "genesis with a past": _case(CHAIN, stage="batch0", draft=_fields(previous_offset=0)),
    "genesis elsewhere": _case(
        CHAIN, ONCE, ATOMIC, STATE, stage="batch0", draft=_genesis_elsewhere
    ),
    "empty range": _case(CHAIN, stage="batch2", draft=_empty_range),
    "records miscounted": _case(CHAIN, stage="batch2", draft=_add("record_count", 1)),
    "pointers forgotten": _case(CHAIN, stage="batch4", draft=_fields(pointers=[])),
    "pointers exchanged": _case(CHAIN, stage="batch7", draft=_exchanged),
    "damaged increment": _case(CHAIN, ATOMIC, stage="batch7", values=_flip_last),
    "increment of another app": _case(FENCE, stage="batch2", draft=_fields(origin={"app_id": "y"})),
    "changes of no batch": _case(CHAIN, stage="batch6", draft=_stray_changes),
    "chunk among increments": _case(CHAIN, stage="batch2", values=lambda v: [_CHUNK, *v]),
    "foreign record": _case(stage="batch2", values=lambda v: [b"foreign", *v]),
    "foreign record among chunks": _case(stage="snapshot2", values=lambda v: [*v, b"foreign"]),
    "changes record missing": _case(CHAIN, STATE, stage="batch2", values=lambda v: v[1:]),
    "changes twice": _case(CHAIN, stage="batch2", values=lambda v: [v[0], *v]),
    "changes without increment": _case(
        ONCE, ATOMIC, CHAIN, STATE, ORDER, stage="batch2", values=lambda v: v[:1]
    ),
    "older owner": _case(FENCE, stage="batch4", draft=_fields(owner_epoch=0)),
    "older owner once more": _case(FENCE, stage="batch5", draft=_fields(owner_epoch=0)),
    "owner of the future": _case(FENCE, stage="batch5", draft=_fields(owner_epoch=1000)),
    "claim aborted": _case(FENCE, STATE, stage="claim3", aborted=frozenset({"log"})),
    "claim of another app": _case(
        FENCE,
        stage="claim3",
        values=lambda _: [pack(CLAIM, {"claim_id": "c", "app_id": "z", "process_id": "p"})],
    ),
    "dead letter": _case(stage="batch7", draft=_dead_lettered),
    "lean batch": _case(stage="batch5", draft=_lean),
    "decision": _case(stage="batch6", draft=_decision, unchecked="an operator's decision"),
    "behind a cut": _case(CHAIN, ATOMIC, stage="batch7", draft=_fields(previous_offset=5000)),
    "behind a cut, begun anew": _case(
        stage="batch3", draft=_behind_a_cut("increments-replaced-1"), unchecked="its owner begins"
    ),
    "behind a cut, accepted": _case(
        CHAIN, stage="batch3", draft=_behind_a_cut("input-gap-1"), unchecked="an operator's"
    ),
    "begun anew too early": _case(
        CHAIN, stage="batch5", draft=_begun_anew_too_early, unchecked="its owner begins"
    ),
    "snapshots made again": _case(stage="batch4", draft=_snapshots_made_again),
    "snapshot gone with its topic": _case(stage="batch3", draft=_gone_with_its_topic),
    "other digest": _case(STATE, stage="batch4", draft=_fields(digest=[4, 1, 2])),
    "other changes": _case(STATE, stage="batch4", draft=_other_changes),
    "falling position": _case(ORDER, CHAIN, stage="batch6", draft=_falling_position),
    "restored an older increment": _case(STATE, journal=_restored(batch=2)),
    "restored at another offset": _case(STATE, journal=_restored(offset=1)),
    "restored another state": _case(STATE, journal=_restored(digest="1:0:0")),
    "told committed, aborted": _case(
        OUTCOMES, ATOMIC, stage="batch7", aborted=frozenset({"log"}), journal=_all_committed
    ),
    "told refused, visible": _case(OUTCOMES, journal=_refused),
    "told committed, another record": _case(OUTCOMES, journal=_elsewhere),
    "told committed, nothing there": _case(OUTCOMES, journal=_nowhere),
    "chunk missing": _case(SNAPSHOTS, stage="snapshot2", values=lambda v: v[:1]),
    "chunk damaged": _case(SNAPSHOTS, stage="snapshot2", values=_flip_last),
    "chunk of another state": _case(SNAPSHOTS, stage="snapshot2", values=_other_entries),
    "chunk with other sums": _case(SNAPSHOTS, stage="snapshot2", values=_other_sums),
    "chunks exchanged": _case(SNAPSHOTS, stage="snapshot2", values=lambda v: v[::-1]),
    "manifest of another batch": _case(SNAPSHOTS, stage="snapshot2", manifest=_of_another_batch),
    "manifest of another state": _case(SNAPSHOTS, stage="snapshot5", manifest=_of_another_state),
    "manifest miscounts": _case(SNAPSHOTS, stage="snapshot5", manifest=_one_entry_more),
    "pointer to nothing": _case(SNAPSHOTS, stage="batch3", draft=_pointing(manifest_offset=50)),
    "pointer to another chunk": _case(
        SNAPSHOTS, stage="batch3", draft=_pointing(first_chunk_offset=1)
    ),
    "pointer to the future": _case(
        SNAPSHOTS, CHAIN, stage="batch3", draft=_pointing(increment_offset=1000)
    ),
    "trimmed one too far": _case(SNAPSHOTS, after=_one_too_far),
    "trimmed as an owner does": _case(
        after=_as_an_owner_trims, unchecked="the chain before it was trimmed"
    ),
    "input trimmed": _case(after=_input_too, unchecked="were trimmed: outputs of what"),
    "trimmed up to a claim": _case(
        after=_up_to_claim, unchecked="the log begins with batch 4; the chain before it was trimmed"
    ),
    "everything trimmed": _case(CHAIN, after=_all),
    "left open": _case(after=_left_open, unchecked="above the last stable one"),
    "outputs trimmed": _case(after=_some_outputs),
}
