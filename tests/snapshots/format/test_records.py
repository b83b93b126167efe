"""The records against what other programs read, and against what earlier versions wrote."""

import json
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given

from snapreplay.snapshots.format.envelope import BODY_BYTES_MAX, decode, encode, open_envelope
from snapreplay.snapshots.format.records import LogEntry
from tests.golden.make import FILES, GOLDEN, readable
from tests.support.entries import entries

LIMITS = {f"max_{name}": BODY_BYTES_MAX for name in ("str_len", "bin_len", "array_len", "map_len", "ext_len")}


@given(entries())
def test_the_msgpack_library_reads_and_writes_the_same_bodies(entry: LogEntry) -> None:
    """Read with its limits set, the body is the same value; packed again, the same bytes."""
    body = open_envelope(encode(entry)).body
    value = msgpack.unpackb(body, strict_map_key=False, **LIMITS)
    assert value == msgspec.msgpack.decode(body)
    assert msgpack.packb(value) == body
    assert msgspec.convert(value, type(entry)) == entry


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_records_of_version_1_are_read(name: str) -> None:
    """Today's reader gives every golden record the meaning written beside it; a field that came later, none."""
    entry = decode((FILES / f"{name}.bin").read_bytes())
    found, recorded = readable(entry), json.loads((FILES / f"{name}.json").read_text())
    assert {field: found[field] for field in recorded} == recorded
    later = [field for field in msgspec.structs.fields(entry) if field.name not in recorded]
    for field in later:
        factory: Any = field.default_factory
        default = field.default if factory is msgspec.NODEFAULT else factory()
        assert found[field.name] == default


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_records_of_version_1_are_written(name: str) -> None:
    """Today's writer gives the same bytes; of compressed ones the same body, as zstd may change."""
    golden = GOLDEN[name]
    value, recorded = golden.value, FILES / f"{name}.bin"
    if golden.compress:
        assert open_envelope(value) == open_envelope(recorded.read_bytes())
        assert value[6] == 1
    else:
        assert value == recorded.read_bytes()


def test_no_golden_file_is_left_over() -> None:
    """Every one has its bytes and its meaning, so none goes unread."""
    names = {f"{name}.{kind}" for name in GOLDEN for kind in ("bin", "json")}
    assert {path.name for path in FILES.iterdir()} == names


def test_every_kind_has_a_golden_record() -> None:
    """A new kind of record needs one too."""
    assert {type(golden.entry) for golden in GOLDEN.values()} == set(LogEntry.__args__)
