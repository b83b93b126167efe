"""The memory that may still be allocated here."""

from __future__ import annotations

import errno
from pathlib import Path

import zstandard

ROOT = Path("/")
_CGROUP = (  # (limit, used) of version 2, then of version 1
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

MEMORY_FACTOR, MEMORY_PER_ENTRY = 1.6, 100
"""Of encoded bytes, and bytes: what a state takes in memory (docs/state.md)."""


def memory_of(state_bytes: int, entries: int) -> int:
    """Return about how much memory a state takes. `state_bytes`: its encoded keys and values."""
    return int(MEMORY_FACTOR * state_bytes + MEMORY_PER_ENTRY * entries)


def available_bytes(root: Path) -> int | None:
    """Return the kernel's estimate or the rest of the container's limit, whichever is less; None if neither can be
    read. `root`: where /proc and /sys are."""
    found = [_from_kernel(root / "proc/meminfo")]
    found += [_left(root / limit, root / used) for limit, used in _CGROUP]
    return min((each for each in found if each is not None), default=None)


def lacks_memory(error: BaseException) -> bool:
    """Say whether an error, Python's or that of a compressor, means that memory could not be allocated."""
    is_ours = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return is_ours or (isinstance(error, zstandard.ZstdError) and "memory" in str(error))


def _from_kernel(path: Path) -> int | None:
    for line in _text(path).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _left(limit: Path, used: Path) -> int | None:
    try:
        return max(0, int(_text(limit)) - int(_text(used)))
    except ValueError:  # "max", or no such file
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
