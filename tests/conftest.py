"""The common ground of all tests: one real broker per session, and names that no other test uses."""

import asyncio
import fcntl
import functools
import gc
import inspect
import os
import re
import signal
import socket
import traceback
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zlib import crc32

import httpcore2
import httpx2
import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from snapreplay.devbroker.broker import LocalBroker
from tests.support.deadlines import factor, scaled
from tests.support.steady import KEEPS_LEADERS
from tests.support.watchdog import set_timer as pytest_timeout_set_timer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_timeout_set_timer"]

# A cluster of one's own to run the tests against instead of the local broker.
BOOTSTRAP_VARIABLE = "SNAPREPLAY_TEST_BOOTSTRAP_SERVERS"

SPARK_FILES = "snapshots/jobs/"

# The longest: what begins last must be short, or the other cores wait for it.
LONGEST_FILES = (
    "snapshots/jobs/test_compact.py",  # and with it all that need Spark
    "simulation/test_simulation.py",
    "service/test_crashes.py",
    "examples/demo/test_demo.py",
    "hints/test_failed_partitions.py",
    "snapreplay/devbroker/test_broker.py",
    "explore/test_explore.py",
    "simulation/test_losses.py",
)

# What is slow because it shows the whole: a browser, each hint carried out, each example and each drawing.
WHOLE = ("page", "examples", "hints", "docs/test_site.py")
LINTED = ("test_tidy.py", "test_packaging.py", "mutants/test_gallery.py")
"""What `make lint` runs, which `make test` runs beside its tests."""
NOT_WHOLE = ("page/test_first_look.py",)  # a page that shows nothing is noticed by `make test`
WHOLE_HERE = re.compile(r"mark\.whole")
"""What a file elsewhere has in its text if some of its tests are whole."""

# On a busy machine any example may take long; a failure elsewhere can be repeated from what it printed.
hypothesis.settings.register_profile(
    "all", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("all")

# Each client of HTTP reads all certificates of this machine for one, also for http://, which takes 25 ms of CPU.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

# A test that sets no deadline of a request needs none. The default of 5 s is not always enough on a busy machine.
for asking in (httpx2.Client.__init__, httpx2.AsyncClient.__init__, httpx2.get, httpx2.post):
    asking.__kwdefaults__["timeout"] = scaled(30)  # type: ignore[index]  # each of them has defaults

# A shell ignores SIGINT and SIGQUIT for what it starts in the background, `nohup` SIGHUP, and children inherit that.
# Tests send them to some. A handler is not inherited, also one that does nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# Tests in parallel get a terminal's width; what they look at goes into a pipe, which has none.
os.environ.pop("COLUMNS", None)


@dataclass(frozen=True, slots=True)
class SharedBroker:
    """The session's broker. It has no kill(): a test that kills starts a LocalBroker of its own."""

    bootstrap_servers: str


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> SharedBroker:
    """One broker for the whole run; every test that uses it is marked `kafka`."""
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        return SharedBroker(given)
    # The worker that needs it first starts it, and outlives the others: each of them holds the second file. It waits
    # for them after its last test, whose time limit would count that.
    place = tmp_path_factory.getbasetemp()
    place = place if worker_id == "master" else place.parent
    users = (place / "broker-users").open("w")
    request.config.add_cleanup(users.close)
    fcntl.flock(users, fcntl.LOCK_SH)
    with (place / "broker").open("a+") as address:
        fcntl.flock(address, fcntl.LOCK_EX)
        address.seek(0)
        bootstrap_servers = address.read()
        if not bootstrap_servers or _is_refused(bootstrap_servers):
            # If the worker that started it has died, on the same port: the others know it already.
            local = _started_broker(port=int(bootstrap_servers.rpartition(":")[2] or 0))
            bootstrap_servers = local.bootstrap_servers
            address.truncate(0)
            address.write(bootstrap_servers)
            request.config.add_cleanup(lambda: _end(local, users))
    return SharedBroker(bootstrap_servers)


def _is_refused(bootstrap_servers: str) -> bool:
    host, _, port = bootstrap_servers.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=scaled(10)).close()
    except ConnectionRefusedError:
        return True
    return False


def _started_broker(port: int) -> LocalBroker:
    # Every five minutes by default: a test that sets a short retention could lose its records, or not.
    # An idle broker would take some hundredths of a core.
    quiet = {"metadata.max.idle.interval.ms": "0", "broker.heartbeat.interval.ms": "2000"}
    unasked = {"log.retention.check.interval.ms": str(86_400_000), **quiet}
    local = LocalBroker(port=port, deadline_s=scaled(60), properties=KEEPS_LEADERS | unasked)
    local.start()
    return local


def _end(local: LocalBroker, users: IO[str]) -> None:
    fcntl.flock(users, fcntl.LOCK_EX)
    local.kill()  # its data is not needed, and an orderly stop closes all topics, which takes long
    local.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """The one of this process, which takes five seconds to start; every test that uses it is marked `spark`."""
    from snapreplay.snapshots.jobs.session import local_session

    session = local_session("snapreplay tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """A function that turns a name into one for topics, groups and apps that no other test has."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:8]}"


# What `make check` runs: tests in these folders that need nothing outside of their process.
PURE = ("attacks", "checker", "damage", "explore", "service", "simulation", "snapreplay", "snapshots")
OUTSIDE = ("kafka", "spark", "whole")


@functools.cache
def is_whole(path: Path) -> bool:
    """Say whether all that lies there shows the whole."""
    path = path.relative_to(Path(__file__).parent)
    return str(path) not in NOT_WHOLE and any(path.is_relative_to(each) for each in WHOLE)


def is_distributed(config: pytest.Config) -> bool:
    """Say whether several workers share the run, here and in each of them."""
    return config.getoption("dist", "no") != "no" or "PYTEST_XDIST_WORKER" in os.environ


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a test that is asked for: of `make whole` a file in five has one."""
    if config.args != config.getini("testpaths") or not collection_path.match("test_*.py"):
        return None
    here = Path(__file__).parent
    match config.getoption("markexpr"):
        case "not whole":
            is_linted = any(collection_path == here / each for each in LINTED)
            return is_whole(collection_path) or (is_linted and is_distributed(config)) or None
        case "pure":
            return not any(collection_path.is_relative_to(here / each) for each in PURE) or None
        case "whole":
            return not (is_whole(collection_path) or WHOLE_HERE.search(collection_path.read_text("utf-8"))) or None
        case _:
            return None


def pytest_configure(config: pytest.Config) -> None:
    """Measure once, before the workers start: they and all child processes inherit the factor."""
    del config
    factor()
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests are no garbage, and are not looked through again for each collection of it."""
    del session
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneSparkSession(config, log) if config.getvalue("dist") == "loadfile" else None


class OneSparkSession(LoadFileScheduling):  # type: ignore[misc] # xdist ships no types
    """A file goes to one worker as a whole; all that need Spark go to the same one, which starts it once."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if SPARK_FILES in nodeid else str(super()._split_scope(nodeid))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    rank = {str(here / name): (number, 0) for number, name in enumerate(LONGEST_FILES)}

    @functools.cache
    def place(path: str) -> tuple[int, int]:
        return rank.get(path) or (len(rank), crc32(path.removeprefix(str(here)).encode()))

    if len({item.nodeid for item in items}) < len(items):  # workers would run one of each
        raise pytest.UsageError("two tests have the same id")
    if is_distributed(config):
        # Behind them in any order that stays the same: files that wait for a broker beside such that only compute.
        items.sort(key=lambda item: place(str(item.path)))
    for item in items:
        if is_whole(item.path):
            item.add_marker("whole")
        fixtures = getattr(item, "fixturenames", ())
        for fixture, marker in (("broker", "kafka"), ("spark", "spark")):
            if fixture in fixtures:
                item.add_marker(marker)
        if item.nodeid.split("/")[1] in PURE and not any(item.get_closest_marker(each) for each in OUTSIDE):
            item.add_marker("pure")


LOG_LINES_SHOWN = 30
FAILED: pytest.StashKey[list[BaseException]] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes of a failed test have logged at last: a failure on another machine has no files to look
    into. Then free what its tracebacks hold, or what it left open would fail a later test."""
    report = yield
    if call.excinfo is not None and report.failed:
        item.stash.setdefault(FAILED, []).append(call.excinfo.value)
    place = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and place is not None:
        for log in sorted(each for each in place.rglob("*.log") if not each.stem.isdigit()):  # those hold records
            lines = log.read_text("utf-8", errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            report.sections.append((f"The end of {log.relative_to(place)}", "\n".join(lines)))
    if report.when == "teardown" and FAILED in item.stash:
        _free(item.stash[FAILED])
    return report


def _free(errors: list[BaseException]) -> None:
    """Clear the frames of these and of what caused them, and let end what only they held: connections close in the
    turns of their loop. Its warnings are of a test that has failed anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while errors:
            error = errors.pop()
            traceback.clear_frames(error.__traceback__)
            for frame, _ in traceback.walk_tb(error.__traceback__):
                assert frame.f_locals is not None  # reading it drops what was cleared
            errors += [each for each in (error.__cause__, error.__context__) if each is not None]
            errors += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        for _ in range(3):
            gc.collect()
            for loop in [each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop)]:
                if not (loop.is_closed() or loop.is_running()):
                    with suppress(RuntimeError):  # another thread has just begun to run it
                        loop.run_until_complete(asyncio.sleep(0.02))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`await bench.owner()` starts one of a ledger in memory. The test that takes it runs in virtual time, where the
    looks of an idle partition cost CPU and show nothing."""
    from snapreplay.service.live import pace
    from tests.support.in_memory import InMemory

    monkeypatch.setattr(pace, "IDLE_POLL_MS", 500)
    return InMemory()


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    """Make a test of the `bench` above what `@virtual` makes of it: in real time it would wait, or pass by luck."""
    is_test = name.startswith("test_") and inspect.iscoroutinefunction(obj)
    if is_test and "bench" in inspect.signature(obj).parameters and not hasattr(collector.obj, "bench"):
        from tests.support.in_memory import virtual

        setattr(collector.obj, name, virtual(obj))
