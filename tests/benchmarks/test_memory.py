"""The memory benchmark: what it reads of a process, what it calls bounded, and a small run of all of it."""

from mmap import mmap

import psutil
import pytest

from benchmarks import memory
from benchmarks.memory import Memory, Result

MIB = 2**20


def result(*peaks_mib: int) -> Result:
    """Make a result: without state 60 MiB, restored 100 MiB, so a state of 40 MiB. In between these peaks."""
    between = [Memory(f"moment {n}", 90 * MIB, peak * MIB) for n, peak in enumerate(peaks_mib)]
    ends = Memory("empty", 60 * MIB, 60 * MIB), Memory("restored", 100 * MIB, 70 * MIB)
    return Result([ends[0], *between, ends[1]], {"loading": 0.5})


@pytest.mark.parametrize(("peak_mib", "bounded"), [(79, True), (80, False)])
def test_bounded_is_below_twice_the_memory_of_the_state(peak_mib, bounded):
    """The state's memory is what the restored process has above one without state; every moment counts."""
    found = result(62, peak_mib, 61)
    assert found.state_bytes == 40 * MIB
    assert (found.bounded, found.worst.name) == (bounded, "moment 1")
    assert ("NOT BELOW" in memory.table(found)) is not bounded


def test_a_peak_is_seen_after_it_is_over_and_can_be_forgotten():
    """As the kernel counts, of any process: here, this one, whose objects may take memory that was freed before."""
    process = psutil.Process()
    memory.forget_peak(process)
    before = memory.memory_of("before", process)
    with mmap(-1, 64 * MIB) as block:
        block.write(b"x" * MIB * 64)
    after = memory.memory_of("after", process)
    assert after.peak_bytes >= before.resident_bytes + 60 * MIB
    memory.forget_peak(process)
    assert memory.memory_of("forgotten", process).peak_bytes < after.peak_bytes


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("value_bytes", [0, 1000])
def test_a_small_run(value_bytes):
    """Real processes, a state too small to say anything about memory: each moment measured, each phase timed."""
    found = memory.measure(keys=5000, meanwhile=1000, value_bytes=value_bytes)
    assert [each.name for each in found.memories] == [
        "no state, LIVE",
        "every key written once",
        "after a snapshot, nothing else",
        "after a snapshot while records came",
        "restored, LIVE",
    ]
    assert all(0 < each.resident_bytes <= each.peak_bytes for each in found.memories)
    assert {"loading", "advancing"} <= found.phases.keys()
    assert all(each.seconds > 0 and each.stop_seconds > 0 for each in found.memories)
    assert found.copy_seconds > 0
