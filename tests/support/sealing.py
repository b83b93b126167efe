"""An app with a seal, in memory; and somebody without its key."""

from typing import Any

import msgspec
import pytest

from snapreplay.snapshots.format.envelope import RecordKind, encode, headers_of, kind_of
from snapreplay.snapshots.format.seal import SealPolicy, Seals, is_sealed
from tests.support.proposals import Job, fed

SEALED_KINDS = {RecordKind.INCREMENT, RecordKind.MANIFEST}
AHEAD_MS = 2**40
KEYS = {"a": "11" * 32, "b": "22" * 32}


@pytest.fixture
def key_file(tmp_path):
    """Writes the keys of these ids, the first one writing; returns the settings."""

    def write(*ids, **more):
        file = tmp_path / f"{'-'.join(ids)}.keys"
        file.write_text("".join(f"{each} {KEYS[each]}\n" for each in ids), "utf-8")
        return {"seal": {"key_file": str(file), **more}}

    return write


def seals(*ids):
    return Seals({each: bytes.fromhex(KEYS[each]) for each in ids}, SealPolicy.REQUIRED, "the file")


def sealed(bench):
    """Say whether they are sealed, of all increments and manifests, by topic."""
    records = [*bench.log(bench.increments).committed(), *bench.log(bench.snapshots).committed()]
    values = [each.value or b"" for each in records]
    return [is_sealed(value) for value in values if kind_of(value) in SEALED_KINDS]


async def ran(bench, **tables):
    """LIVE, 20 records more, a snapshot, and everything is exactly once."""
    async with bench.live(**tables) as one:
        await fed(bench, one)
        await one.snapshot()
        await fed(bench, one)
        await bench.assert_exactly_once(one)


def forged_increment(bench, value=encode, **changed):
    """The next one in the chain: everything is as the owner would have written it."""
    log = bench.log(bench.increments)
    offset, last = Job(bench).increments[-1]
    nothing: Any = {"ranges": [], "changes": None, "outputs": {}, "outputs_xxh64": {}}
    made = msgspec.structs.replace(
        last,
        batch=last.batch + 1,
        previous_offset=offset,
        record_count=0,
        **nothing | changed,
    )
    return log.append(None, value(made), headers_of(made), 1000, None)


def of_key(number, partition=0):
    return lambda made: seals(number).put_on(encode(made), partition)
