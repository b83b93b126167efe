"""Commands for the author of an app: new, a project that runs as it is (app, tests, pyproject.toml, Dockerfile,
README), and dev, which runs an app with a local broker, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import Verbosity, configure
from snapreplay.api.cli.options import cluster_of, settings_from
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
    print(f"next: cd {name}; {tests}; snapreplay dev {module_of(name)}.py")


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

BROKER_OPTIONS = {"kafka_port": "--kafka-port N", "data_dir": "--data-dir DIR"}
"""Fact of an error of the local broker → the option of `dev` that decides it."""


def dev(
    apps: options.AppNames,
    *,
    partitions: options.NewPartitions = 4,
    data_dir: options.DataDir = None,
    kafka_port: options.KafkaPort = 0,
    http_port: options.HttpPort = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    log_level: options.LogLevel = Verbosity.INFO,
) -> int:
    """Run one app or several with a local broker and their topics, until Ctrl-C."""
    programs = options.load_apps(apps)
    settings = settings_from(config, overrides, None, http_port)
    configure(log_level)

    from snapreplay.devbroker.broker import KEEP_OLD_RECORDS, LocalBroker
    from snapreplay.devbroker.files import ToolsMissing

    try:
        with LocalBroker(data_dir=data_dir, port=kafka_port, properties=KEEP_OLD_RECORDS, report=note) as broker:
            servers = broker.bootstrap_servers
            note(f"Kafka:    {servers}" + (f" in {data_dir}" if data_dir else ""))
            return _serve_apps(programs, settings, servers, partitions)
    except ToolsMissing as error:
        error.hint += f"; or {INSTEAD}"
        raise
    except UsageError as error:
        error.hint += "".join(f", with `{option}`" for fact, option in BROKER_OPTIONS.items() if fact in error.facts)
        raise


def _serve_apps(apps: Sequence[App[Any]], settings: Settings, servers: str, partitions: int) -> int:
    """Make topics and genesis, then run the services until Ctrl-C or SIGTERM; return the exit code."""
    from snapreplay.service.program import run

    kafka = settings.kafka | {"bootstrap.servers": servers}
    here = settings.replaced(kafka=kafka)
    asyncio.run(_prepare(apps, here, partitions))
    return run(apps, here, http=announced_http(apps))


async def _prepare(apps: Sequence[App[Any]], settings: Settings, partitions: int) -> None:
    from snapreplay.app.ways import app_name
    from snapreplay.service.decisions.init import init_app
    from snapreplay.service.topics.requirements import ensure_topics

    cluster = cluster_of(settings)
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
