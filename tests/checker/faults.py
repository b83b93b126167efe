"""Every way in which a log can break a rule of the checker, and the rules that it breaks."""

from collections.abc import Callable
from typing import NamedTuple

from tests.checker.forged import Body, Draft, Fault, Forgery, Owner, digest, pack, record, sent_hash
from tests.checker.verdict import Check
from tests.checker.wire import CHUNK

ONCE, ATOMIC, CHAIN, FENCE = Check.EXACTLY_ONCE, Check.ATOMICITY, Check.CHAIN, Check.FENCE
STATE, OUTCOMES, SNAPSHOTS, ORDER = Check.STATE, Check.OUTCOMES, Check.SNAPSHOTS, Check.ORDER


class Case(NamedTuple):
    """`breaks`: exactly these rules. `unchecked`: words of what the checker must say it could not look at."""

    fault: Fault
    breaks: frozenset[Check] = frozenset()
    unchecked: str = ""


def _case(stage: str, *breaks: Check, unchecked: str = "", **fault: object) -> Case:
    return Case(Fault(stage, **fault), frozenset(breaks), unchecked)  # type: ignore[arg-type] # one fault's fields


def _fields(**fields: object) -> Callable[[Draft], object]:
    return lambda draft: draft.increment.update(fields)


def _add(name: str, number: int) -> Callable[[Draft], object]:
    return lambda draft: draft.increment.update({name: draft.increment[name] + number})


# ------------------------------------------------------------------------------- outputs


def _swapped(draft: Draft) -> None:
    draft.outputs.insert(0, draft.outputs.pop(1))


def _record_left_out(draft: Draft) -> None:
    """The first record of the second input: in no range, without output, not in the count."""
    topic, start, end, _ = draft.increment["ranges"][1]
    draft.increment["ranges"][1] = [topic, start + 1, end, end - start - 1]
    draft.increment["record_count"] -= 1


def _position_too_far(draft: Draft) -> None:
    """Put the position behind the input's end: records that do not exist yet count as processed."""
    for each in draft.increment["ranges"]:
        each[2] += 100
        draft.increment["positions"][each[0]] += 100


def _another_first(draft: Draft) -> None:
    """The batch before ended in the turn of a record of the second input."""
    draft.increment["begun_input"] = f"refunds-{draft.owner.app_id}"


# --------------------------------------------------------------------------------- state


def _other_changes(draft: Draft) -> None:
    """Intact and counted right, and yet another value than was put out."""
    entries = draft.changes[0]["stores"]["default"]
    entries[min(entries)] = _flipped(entries[min(entries)])


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


def _decided(finding: str) -> Callable[[Draft], object]:
    def draft(draft: Draft) -> None:
        draft.increment |= {"decision": {"finding": finding}, "previous_offset": draft.owner.epoch}

    return draft


def _of_schema(schema: int) -> Callable[[Draft], object]:
    return lambda draft: draft.increment["origin"].update(schema_version=schema)


def _upgraded(schema: int = 2) -> Callable[[Draft], object]:
    """The owner upgrades the state, and what follows is of the new schema."""

    def draft(draft: Draft) -> None:
        _decided("state-upgraded-1")(draft)
        _of_schema(schema)(draft)
        draft.owner.fault = Fault(stage="batch7", draft=_of_schema(schema))

    return draft


def _cut(then: str, finding: str) -> Callable[[Draft], object]:
    """The log is shorter than this owner knows, and `then` the chain begins again."""

    def draft(draft: Draft) -> None:
        draft.increment["previous_offset"] = 5000
        draft.owner.fault = Fault(stage=then, draft=_decided(finding), journal=_without("restore"))

    return draft


def _snapshots_made_again(draft: Draft) -> None:
    """Make the snapshots topic again, with all of them gone; what is written from now on is in the new topic."""
    draft.owner.topic_ids = {f"{draft.owner.app_id}-snapshots": "new"}
    draft.owner.pointers = []
    draft.increment |= {"pointers": [], "topic_ids": draft.owner.topic_ids}


def _gone_with_its_topic(draft: Draft) -> None:
    """The snapshot is not there, and neither is the topic that the next increment speaks of."""
    draft.increment["pointers"][0]["manifest_offset"] = 50
    draft.owner.fault = Fault(stage="batch4", draft=_snapshots_made_again)


def _moved(by: int) -> Callable[[Draft], object]:
    """The position in the first input is another."""

    def draft(draft: Draft) -> None:
        topic = next(iter(draft.increment["positions"]))
        draft.increment["positions"][topic] += by

    return draft


def _flipped(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 1])


def _flip_last(values: list[bytes]) -> list[bytes]:
    return [*values[:-1], _flipped(values[-1])]


# ----------------------------------------------------------------------------- snapshots

_ENTRIES = {b"\xa1x": b"\x01"}


def _chunk(**fields: object) -> bytes:
    return pack(CHUNK, {"snapshot_id": "snapshot2", "sequence": 0, "store": "default"} | fields)


def _first_chunk(a: int, b: int) -> Callable[[list[bytes]], list[bytes]]:
    """Other entries, and these sums."""
    return lambda values: [_chunk(slices=[[0, a, b, _ENTRIES]]), values[1]]


def _pointing(**fields: int) -> Callable[[Draft], object]:
    return lambda draft: draft.increment["pointers"][0].update(fields)


# ----------------------------------------------------------------------- what was told


def _all_committed(lines: list[Body]) -> list[Body]:
    """Report what was aborted as committed."""
    return [
        line | {"result": "committed", "offset": line["written_at"]} if line.get("result") == "doubt" else line
        for line in lines
    ]


def _last_told(**fields: object) -> Callable[[list[Body]], list[Body]]:
    return lambda lines: [*lines[:-1], lines[-1] | fields]


def _at_its_marker(lines: list[Body]) -> list[Body]:
    return _last_told(offset=lines[-1]["offset"] + 1)(lines)


def _without(kind: str) -> Callable[[list[Body]], list[Body]]:
    return lambda lines: [line for line in lines if line["kind"] != kind]


def _restored(**fields: object) -> Callable[[list[Body]], list[Body]]:
    return lambda lines: [line | fields if line["kind"] == "restore" else line for line in lines]


def _copied(**fields: object) -> Callable[[list[Body]], list[Body]]:
    """Change what is recorded of the warm copy that had the last batch."""
    last = {"kind": "copy", "batch": 7}.items()
    return lambda lines: [line | fields if last <= line.items() else line for line in lines]


# --------------------------------------------------------------------------------- trims


def _as_an_owner_trims(forgery: Forgery, owner: Owner) -> None:
    oldest = owner.pointers[-1]
    forgery.trim(owner, "increments", oldest["increment_offset"])
    forgery.trim(owner, "snapshots", oldest["first_chunk_offset"])


def _one_too_far(forgery: Forgery, owner: Owner) -> None:
    forgery.trim(owner, "snapshots", owner.pointers[-1]["first_chunk_offset"] + 1)


def _input_too(forgery: Forgery, owner: Owner) -> None:
    _as_an_owner_trims(forgery, owner)
    forgery.trim(owner, "payments", 4)


CASES: dict[str, Case] = {
    "nothing": _case(""),
    "second output": _case("batch2", ONCE, draft=lambda d: d.outputs.append(d.outputs[0])),
    "output missing": _case("batch2", ONCE, ATOMIC, draft=lambda d: d.outputs.pop(2)),
    "output of another content": _case("batch2", ONCE, ATOMIC, draft=lambda d: d.outputs[1][1].update(sum=-1)),
    "turn forgotten": _case("batch5", ORDER, draft=_another_first),
    "outputs swapped": _case("batch2", ORDER, draft=_swapped),
    "record in no range": _case("batch2", ONCE, CHAIN, ATOMIC, STATE, ORDER, draft=_record_left_out),
    "position behind the input": _case("batch7", ONCE, draft=_position_too_far),
    "outputs aborted": _case("batch2", ONCE, ATOMIC, aborted=frozenset({"outputs"})),
    "increment aborted": _case("batch7", ATOMIC, aborted=frozenset({"log"})),
    "batch left out": _case("batch7", CHAIN, draft=_add("batch", 1)),
    "fork": _case("batch2", CHAIN, draft=_add("previous_offset", -2)),
    "genesis missing": _case("batch0", CHAIN, values=lambda v: []),
    "pointers forgotten": _case("batch4", CHAIN, draft=_fields(pointers=[])),
    "damaged increment": _case("batch7", CHAIN, ATOMIC, values=_flip_last, journal=_without("copy")),
    "foreign record": _case("batch2", values=lambda v: [b"foreign", *v]),
    "changes record missing": _case("batch2", CHAIN, STATE, values=lambda v: v[1:]),
    "older owner": _case("batch4", FENCE, draft=_fields(owner_epoch=0)),
    "claim aborted": _case("claim3", FENCE, STATE, aborted=frozenset({"log"})),
    "dead letter": _case("batch7", draft=_dead_lettered),
    "lean batch": _case("batch5", draft=lambda d: d.changes.clear()),
    "decision": _case("batch6", draft=_decided("f"), unchecked="an operator's decision"),
    "upgraded": _case("batch6", draft=_upgraded(), unchecked="its owner begins"),
    "behind a cut": _case("batch7", CHAIN, ATOMIC, draft=_fields(previous_offset=5000)),
    "behind a cut, begun again": _case(
        "batch3", draft=_cut("batch4", "increments-replaced-1"), unchecked="its owner begins"
    ),
    "snapshot gone with its topic": _case("batch3", draft=_gone_with_its_topic),
    "stream time set back": _case("batch7", STATE, draft=_add("stream_time_ms", -1)),
    "fired and nothing due": _case("batch6", STATE, draft=_fields(fired_count=1)),
    "stores that are not there": _case(
        "batch4", STATE, draft=_fields(store_digests={"default": [4, 1, 2], "holds": [1, 1, 2]})
    ),
    "other digest": _case("batch4", STATE, draft=_fields(digest=[4, 1, 2])),
    "other changes": _case("batch4", STATE, draft=_other_changes),
    "falling position": _case("batch6", ORDER, CHAIN, draft=_moved(-1)),
    "restored another state": _case("", STATE, journal=_restored(digest="1:0:0")),
    "copied another state": _case("", STATE, journal=_copied(digest="1:0:0")),
    "told committed, aborted": _case("batch7", OUTCOMES, ATOMIC, aborted=frozenset({"log"}), journal=_all_committed),
    "told refused, visible": _case("", OUTCOMES, journal=_last_told(result="refused", offset=None)),
    "told committed, nothing there": _case("", OUTCOMES, journal=_at_its_marker),
    "chunk damaged": _case("snapshot2", SNAPSHOTS, values=_flip_last),
    "chunk of another state": _case("snapshot2", SNAPSHOTS, values=_first_chunk(*digest(_ENTRIES)[1:])),
    "manifest of another state": _case(
        "snapshot5", SNAPSHOTS, manifest=lambda m: m.update(digest=[1, 2, 3], entries_digest=[1, 2, 3])
    ),
    "pointer to nothing": _case("batch3", SNAPSHOTS, draft=_pointing(manifest_offset=50)),
    "trimmed one too far": _case("", SNAPSHOTS, after=_one_too_far),
    "trimmed as an owner does": _case("", after=_as_an_owner_trims, unchecked="the chain before it was trimmed"),
    "input trimmed": _case("", after=_input_too, unchecked="were trimmed: outputs of what"),
    "left open": _case("", after=lambda f, o: f.leave_open(o), unchecked="above the last stable one"),
    "outputs trimmed": _case("", after=lambda f, o: f.trim(o, "accounts", 8)),
}
