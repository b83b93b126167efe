"""Commands for the author of an app: new, a project that runs as it is (app, tests, pyproject.toml, Dockerfile,
README), and dev, which runs an app with a local broker, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from types import FrameType
from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import Verbosity, configure
from snapreplay.api.cli.options import settings_from
from snapreplay.api.cli.output import note
from snapreplay.api.cli.running import announced_http, of_each
from snapreplay.errors import UsageError

if TYPE_CHECKING:
    from snapreplay.app.app import App
    from snapreplay.service.config.settings import Settings

NAME_MAX = 100
FILES = {
    "app.py": "{module}.py",
    "tests/test_unit.py": "tests/test_{module}.py",
    "tests/test_on_kafka.py": "tests/test_on_kafka.py",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "README.md": "README.md",
    "gitignore": ".gitignore",
}
"""Template → file of the project."""


def new(name: options.ProjectName) -> None:
    """Make a project in a new folder: an app, its tests, pyproject.toml, Dockerfile, README."""
    made = make_project(name, Path.cwd())
    for path in made:
        print(f"created {path}")
    tests = "pip install pytest pytest-asyncio; python -m pytest"
    print(f"next: cd {name}; {tests}; snapreplay dev {module_of(name)}.py --reload")


def make_project(name: str, parent: Path) -> list[Path]:
    """Write all files; return their paths below `parent`, or raise UsageError: not a name for a folder, an app and a
    module, or the folder exists, or it cannot be written."""
    from importlib.resources import files

    module = module_of(name)
    project = parent / name
    root = files("snapreplay.api.cli") / "project"
    texts = {
        target.format(module=module): Template((root / f"{source}.tmpl").read_text(encoding="utf-8")).substitute(
            name=name, module=module
        )
        for source, target in FILES.items()
    }
    try:
        project.mkdir()
        for target, text in texts.items():
            (project / target).parent.mkdir(exist_ok=True)
            (project / target).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise UsageError(f"{project} exists already: nothing was written") from error
    except OSError as error:
        raise UsageError(f"{project} cannot be written: {error.strerror}") from error
    return [(project / target).relative_to(parent) for target in texts]


def module_of(name: str) -> str:
    """Return the module's name, or raise UsageError: it cannot name a folder, an app id and a module."""
    module = name.replace("-", "_")
    legal = name.isascii() and module.isidentifier() and module[0].isalpha() and len(name) <= NAME_MAX
    if (
        not legal
        or iskeyword(module)
        or module in sys.stdlib_module_names
        or module == "tests"
        or _is_installed(module)
    ):
        raise UsageError(
            f"{name!r} cannot name a folder, an app id and a module",
            hint='begin with a letter, continue with letters, digits, "-" or "_", and use neither a keyword nor'
            " the name of a module that can already be imported",
        )
    return module


def _is_installed(module: str) -> bool:
    """Say whether the project's module would hide another one. A folder without an `__init__.py` is not counted as
    one."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


INSTEAD = (
    "do without the local broker, on a cluster that has the app's input and output topics: run"
    " `snapreplay topics ensure APP`, `snapreplay init APP` and `snapreplay run APP`,"
    " each with --bootstrap-servers HOST:PORT"
)
PORT_FILE = "snapreplay-dev-port"
"""In the data directory: the port of the last time. Kafka ignores files that it does not know."""


def dev(
    apps: options.AppNames,
    *,
    partitions: options.NewPartitions = 4,
    data_dir: options.DataDir = None,
    kafka_port: options.KafkaPort = 0,
    reload: options.Reload = False,
    on_broker: options.OnBroker = None,
    http_port: options.HttpPort = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    log_level: options.LogLevel = Verbosity.INFO,
) -> int:
    """Run one app or several with a local broker and their topics, until Ctrl-C."""
    if reload:
        from snapreplay.app.load import check_together

        # What is wrong with the settings no change of the code repairs: it is refused here.
        settings_from(config, overrides, None, http_port)
        check_together(apps)
        return _on_local_broker(data_dir, kafka_port, _reloading(apps))
    programs = options.load_apps(apps)
    settings = settings_from(config, overrides, None, http_port)
    configure(log_level)

    def serve(servers: str) -> int:
        return _serve_apps(programs, settings, servers, partitions)

    if on_broker is not None:
        _end_with_parent()
        return serve(on_broker)
    return _on_local_broker(data_dir, kafka_port, serve)


def _on_local_broker(data_dir: Path | None, kafka_port: int, serve: Callable[[str], int]) -> int:
    """Run a local broker while `serve`, given its address, blocks; return what `serve` returns.

    Raises:
        LocalBrokerUnavailable: Java, Maven or the jars are missing, or the broker failed.
        UsageError: the port is taken.
    """
    from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
    from snapreplay.devbroker.errors import ToolsMissing

    port = kafka_port or _last_port(data_dir)
    try:
        with LocalBroker(data_dir=data_dir, port=port, properties=KEEP_OLD_RECORDS, report=note) as broker:
            servers = broker.bootstrap_servers
            note(f"Kafka:    {servers}" + (f" in {data_dir}" if data_dir else ""))
            if data_dir is not None:
                (data_dir / PORT_FILE).write_text(servers.rpartition(":")[2])
            return serve(servers)
    except ToolsMissing as error:
        error.or_else(INSTEAD)
        raise


def _last_port(data_dir: Path | None) -> int:
    """Return the port of the last `dev` with this directory; 0 if there is none, or if another program listens
    there now."""
    if data_dir is None:
        return 0
    try:
        port = int((data_dir / PORT_FILE).read_text())
    except (OSError, ValueError):
        return 0
    from snapreplay.devbroker.free_ports import is_free_soon

    if is_free_soon(port):
        return port
    note(f"Kafka:    port {port} of the last run is in use, so another one is used")
    return 0


def _serve_apps(apps: Sequence[App[Any]], settings: Settings, servers: str, partitions: int) -> int:
    """Make topics and genesis, then run the services until Ctrl-C or SIGTERM; return the exit code."""
    from snapreplay.service.program import run

    kafka = settings.kafka | {"bootstrap.servers": servers}
    here = settings.replaced(kafka=kafka)
    asyncio.run(_prepare(apps, here, partitions))
    return run(apps, here, http=announced_http(apps))


def _end_with_parent() -> None:
    """Stop as by SIGTERM when standard input ends, as it does when the parent dies."""

    def wait() -> None:
        with suppress(OSError):
            # Not by sys.stdin: at the end of the process this thread would still hold its lock.
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


async def _prepare(apps: Sequence[App[Any]], settings: Settings, partitions: int) -> None:
    from snapreplay.app.ways import app_name
    from snapreplay.service.decisions.init import init_app
    from snapreplay.service.kafka.cluster import KafkaCluster
    from snapreplay.service.topics.requirements import ensure_topics

    cluster = KafkaCluster(settings)
    for line in await of_each(apps, lambda app: ensure_topics(app, settings, cluster, create_io_partitions=partitions)):
        note(f"topic:    {line}")
    for line in await of_each(apps, lambda app: init_app(app, settings, cluster)):
        note(f"genesis:  {line}")
    at = f"--bootstrap-servers {settings.kafka['bootstrap.servers']}"
    for app in apps:
        # A new broker has no coordinator of groups until the first question. Asked by the service, it logs errors.
        await cluster.member_count(app.app_id)
        name = shlex.quote(app_name(app))
        for topic_name in app.input_names[:1]:
            note(f"feed it:  snapreplay feed {name} {topic_name} {at}")
        for topic in app.outputs[:1]:
            note(f"watch it: snapreplay tail {name} {topic.name} --follow {at}")


LOOK_S = 0.25

Stamps = dict[Path, tuple[int, int]]


class CodeWatch:
    """The files of apps: their modules and those of the same author that they import, found without running them."""

    def __init__(self, *apps: str) -> None:
        """Watch the files of these apps, or raise UsageError: there is no such file, and none will be started by a
        change of it."""
        self._modules: list[str] = []
        self._files: set[Path] = set()
        for app in apps:
            place = app.rpartition(":")[0] or app
            path = Path(place)
            is_file = place.endswith(".py") or "/" in place
            if is_file and not path.is_file():
                raise UsageError(f"app file {path} does not exist")
            self._modules.append(path.stem if is_file else place)
            folder = path.resolve().parent if is_file else Path.cwd()
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            self._files |= {path.resolve()} if is_file else set(folder.glob("*.py"))

    def look(self) -> Stamps:
        """Look when each file was written, and at its size. A file that cannot be compiled now keeps those that
        were known."""
        from snapreplay.app.code_version import own_files

        for module in self._modules:
            with suppress(UsageError):  # the service says what is wrong with it
                self._files |= {Path(file).resolve() for file in own_files([module])}
        return {file: _stamp(file) for file in self._files}


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:  # it is being replaced
        return (0, 0)
    return status.st_mtime_ns, status.st_size


class _Stopped(Exception):
    """Ctrl-C or SIGTERM."""


def _keep_running(watch: CodeWatch, command: Sequence[str]) -> int:
    """Run `command` until Ctrl-C or SIGTERM; after each change of the app's files, stop it gracefully and start it
    again. If it ends by itself, wait for the next change. Returns the last exit code.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _Stopped

    former = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    child: subprocess.Popen[bytes] | None = None
    try:
        while True:
            stamps = watch.look()
            # Ctrl-C in the terminal is for this process only: it decides what stops first.
            child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            changed = _until_changed(child, watch, stamps)
            note(f"code changed: {', '.join(changed)}; the service starts again with its state")
            _end(child)
    except _Stopped:
        for each in former:
            signal.signal(each, signal.SIG_IGN)  # a second one changes nothing
        return _end(child) if child is not None else 0
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


def _until_changed(child: subprocess.Popen[bytes], watch: CodeWatch, stamps: Stamps) -> list[str]:
    """Wait for a change; return the names of the files that are other ones now."""
    told = False
    while (now := watch.look()) == stamps:
        if child.poll() is not None and not told:
            told = True
            note(f"the service ended with exit code {child.returncode}; the next change starts it")
        time.sleep(LOOK_S)  # between two looks at the files
    changed = [file.name for file in now if now[file] != stamps.get(file)]
    return sorted(changed)


def _end(child: subprocess.Popen[bytes]) -> int:
    """End gracefully: a last snapshot is written. The service has a deadline of its own."""
    child.terminate()
    code = child.wait()
    if child.stdin is not None:
        child.stdin.close()
    return code


def _reloading(apps: Sequence[str]) -> Callable[[str], int]:
    """Return what `_on_local_broker` is to serve: `dev` as it was typed again, on the broker that runs already."""

    def serve(servers: str) -> int:
        typed = [each for each in sys.argv[1:] if each != "--reload"]
        at = typed.index("dev") + 1  # behind a `--` there are no options
        words = [*typed[:at], "--on-broker", servers, *typed[at:]]
        return _keep_running(watch, [sys.executable, "-m", "snapreplay.api.cli", *words])

    watch = CodeWatch(*apps)
    return serve
