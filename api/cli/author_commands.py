"""Commands for the author of an app: new, a project that runs as it is (app, tests, pyproject.toml, Dockerfile,
README), and dev, which runs an app with a local broker."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template

from snapreplay.api.cli import options
from snapreplay.api.cli.logs import Verbosity, configure
from snapreplay.api.cli.options import settings_from
from snapreplay.api.cli.running import announced_http
from snapreplay.errors import UsageError

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
            hint='begin with a letter, go on with letters, digits, "-" or "_", and use neither a keyword nor the name'
            " of a module that can already be imported",
        )
    return module


def _is_installed(module: str) -> bool:
    """Say whether the project's module would hide another one. A folder without an `__init__.py` is not counted as
    one."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


def dev(
    app: options.AppName,
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
    """Run an app with a local broker and its topics, until Ctrl-C."""
    from snapreplay.api.cli import dev as local
    from snapreplay.app.load import load_app

    if reload:
        # What is wrong with the settings no change of the code repairs: it is refused here.
        settings_from(config, overrides, None, http_port)
        return local.run_dev(data_dir, kafka_port, local.reloading(app))
    program = load_app(app)
    settings = settings_from(config, overrides, None, http_port)
    configure(log_level)

    def serve(servers: str) -> int:
        return local.serve_app(program, settings, servers, partitions, announced_http())

    if on_broker is not None:
        local.end_with_parent()
        return serve(on_broker)
    return local.run_dev(data_dir, kafka_port, serve)
