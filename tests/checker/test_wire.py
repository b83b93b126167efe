"""The checker's own reader of the two topics against the golden records of the format."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checker import wire

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "v1"
RECORDS = sorted(GOLDEN.glob("*.bin"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_golden_records_are_read(path: Path) -> None:
    """Kind and fields of each golden record are what stands beside it."""
    entry: Any = wire.decode(path.read_bytes())
    meaning = json.loads(path.with_suffix(".json").read_text())
    assert type(entry).__name__.lower() in path.stem
    same = {"batch", "snapshot_id", "owner_epoch", "positions", "claim_id", "previous_offset"}
    for name in same & meaning.keys() & set(entry.__struct_fields__):
        assert getattr(entry, name) == meaning[name]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_any_other_byte_is_damage(path: Path) -> None:
    """A record with one byte changed, or cut anywhere, is never read as another record."""
    value = path.read_bytes()
    steps = range(0, len(value), max(1, len(value) // 64))
    for at in steps:
        for spoilt in (value[:at], value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]):
            with pytest.raises(wire.Damaged):
                wire.decode(spoilt)


def test_foreign_records_are_told_apart() -> None:
    """Without our magic and without our headers a record is somebody else's."""
    assert wire.is_foreign(b"filler", ())
    assert wire.is_foreign(None, [("other", b"")])
    assert not wire.is_foreign(b"filler", [("snapreplay.kind", b"claim")])
    assert not wire.is_foreign(wire.MAGIC, ())
