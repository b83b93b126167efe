"""The golden records of the format: `v1/` has what each means as JSON, and its bytes beside it.

    python -m tests.golden.make

writes the bytes of a new meaning. A file that exists is never written again: released bytes are what readers must go on
reading. A name begins with the kind of its record; `_compressed` at its end says how it is written.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import ChangesRecord, Chunk, Claim, Increment, LogEntry, Manifest

FILES = Path(__file__).with_name("v1")
KINDS: dict[str, type[LogEntry]] = {
    "changes": ChangesRecord,
    "chunk": Chunk,
    "claim": Claim,
    "increment": Increment,
    "manifest": Manifest,
}


@dataclass(frozen=True)
class Golden:
    """One record, and whether it is written compressed."""

    entry: LogEntry
    compress: bool = False

    @property
    def value(self) -> bytes:
        return encode(self.entry, compress=self.compress)


def readable(value: Any) -> Any:
    """Convert a value to what JSON can hold: bytes as "0x…", structures by their field names."""
    match value:
        case msgspec.Struct():
            named = {name: getattr(value, name) for name in value.__struct_fields__}
            return readable(named)
        case dict():
            return {readable(key): readable(item) for key, item in value.items()}
        case list():
            return [readable(item) for item in value]
        case bytes():
            return "0x" + value.hex()
        case _:
            return value


def _told(value: Any, kind: inspect.Type) -> Any:
    """Undo `readable`."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            known = {field.name: field.type for field in fields}
            return cls(**{name: _told(item, known[name]) for name, item in value.items()})
        case inspect.DictType(key_type=key_type, value_type=value_type):
            return {_told(key, key_type): _told(each, value_type) for key, each in value.items()}
        case inspect.ListType(item_type=item_type):
            return [_told(item, item_type) for item in value]
        case inspect.UnionType(types=types) if value is not None:
            return _told(value, next(each for each in types if each != inspect.NoneType()))
        case inspect.BytesType():
            return bytes.fromhex(value[2:])
        case _:
            return value


def _golden(path: Path) -> Golden:
    kind, _, how = path.stem.partition("_")
    entry = _told(json.loads(path.read_text()), inspect.type_info(KINDS[kind]))
    return Golden(entry, how == "compressed")


GOLDEN = {path.stem: _golden(path) for path in sorted(FILES.glob("*.json"))}


def main() -> int:
    """Write what is missing. Returns 0."""
    for name, golden in GOLDEN.items():
        path = FILES / f"{name}.bin"
        if not path.exists():
            path.write_bytes(golden.value)
            sys.stdout.write(f"wrote {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
