"""The memory that a process may take: of the machine, and within the container's limit."""

from snapreplay.service.runtime.free_memory import available_bytes

KIB = 1024


def machine(folder, **files):
    """A file system with these files; `__` stands for the slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_kernel_says_what_is_free(tmp_path):
    """MemAvailable, not MemFree: caches are given up."""
    root = machine(tmp_path, proc__meminfo="MemFree: 1 kB\nMemAvailable:    2048 kB\n")
    assert available_bytes(root) == 2048 * KIB


def test_a_container_may_take_less_than_the_machine_has(tmp_path):
    """The limit less what is used; never negative, and "max" is no limit."""
    files = {
        "proc__meminfo": "MemAvailable: 2048 kB\n",
        "sys__fs__cgroup__memoryDOTmax": str(1000 * KIB),
        "sys__fs__cgroup__memoryDOTcurrent": str(400 * KIB),
    }
    assert available_bytes(machine(tmp_path, **files)) == 600 * KIB
    files["sys__fs__cgroup__memoryDOTcurrent"] = str(1400 * KIB)
    assert available_bytes(machine(tmp_path, **files)) == 0
    files["sys__fs__cgroup__memoryDOTmax"] = "max\n"
    assert available_bytes(machine(tmp_path, **files)) == 2048 * KIB


def test_unknown_is_none(tmp_path):
    """No file, no guess."""
    assert available_bytes(tmp_path) is None
