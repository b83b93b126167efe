"""The sources of settings: trees of values from the environment, a TOML file, dotted names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snapreplay.errors import UsageError
from snapreplay.service.config.kafka_properties import dotted

ENV_PREFIX = "SNAPREPLAY_"
DEFAULT_FILE = "snapreplay.toml"

_NO_SETTING = re.compile(r"ENGINE|TEST_.*|(SPARK_)?JARS_DIR")
_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")

Tree = dict[str, Any]


def merged(*trees: Tree) -> Tree:
    """Take each value from the first tree that has it, table by table."""
    whole: Tree = {}
    for tree in reversed(trees):
        for name, value in tree.items():
            table = whole.get(name)
            are_tables = isinstance(table, dict) and isinstance(value, dict)
            whole[name] = table | value if are_tables else value
    return whole


def names_in(tree: Tree) -> list[str]:
    tables = [(name, table) for name, table in tree.items() if isinstance(table, dict)]
    return [*tree, *(f"{name}.{inner}" for name, table in tables for inner in table)]


def file_tree(path: Path | None) -> Tree:
    if path is None and not Path(DEFAULT_FILE).is_file():
        return {}
    path = path or Path(DEFAULT_FILE)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"settings file {path} (--config) cannot be read: {reason}", path=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"settings file {path} is not valid TOML: {error}", path=str(path)) from None
    if isinstance(tree.get("kafka"), dict):
        tree["kafka"] = _flatten(tree["kafka"])
    return tree


def _flatten(tree: Mapping[str, object], prefix: str = "") -> Tree:
    """Go back to dotted names: `bootstrap.servers = …` without quotes is a nested table in TOML."""
    flat: Tree = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[dotted(f"{prefix}{name}")] = value
    return flat


def environment_names(environment: Mapping[str, str]) -> dict[str, str]:
    """Map each dotted name to the variable that gives it: http.port → SNAPREPLAY_HTTP__PORT.

    Left out are our own variables that are no settings, and what Kubernetes sets in each pod for a Service called
    snapreplay, or snapreplay-something.
    """
    return {
        _setting(name): name
        for name, value in environment.items()
        if name.upper().startswith(ENV_PREFIX) and not _is_no_setting(name[len(ENV_PREFIX) :].upper(), value)
    }


def _setting(variable: str) -> str:
    name = ".".join(variable[len(ENV_PREFIX) :].lower().split("__"))
    return dotted(name) if name.startswith("kafka.") else name


def _is_no_setting(name: str, value: str) -> bool:
    if "__" in name:
        return False
    is_port = name.endswith("PORT") and "://" in value  # SNAPREPLAY_PORT=tcp://10.0.0.1:80
    return is_port or bool(_NO_SETTING.fullmatch(name) or _KUBERNETES.fullmatch(name))


def environment_tree(environment: Mapping[str, str]) -> Tree:
    """Turn SNAPREPLAY_HTTP__PORT=0 into {"http": {"port": "0"}}."""
    names = environment_names(environment)
    return unfold({dotted_name: environment[name] for dotted_name, name in names.items()})


def environment_name(dotted_name: str) -> str:
    group, _, rest = dotted_name.partition(".")
    return ENV_PREFIX + "__".join(filter(None, (group, rest.replace(".", "_")))).upper()


def unfold(flat: Mapping[str, object]) -> Tree:
    """Turn dotted names into a tree; everything after `kafka.` is one name. Nested mappings pass as they are."""
    tree: Tree = {}
    for name, value in flat.items():
        group, _, rest = name.partition(".")
        if group == "kafka" and isinstance(value, Mapping):
            tree.setdefault(group, {}).update(_flatten(value))
        elif rest:
            table = tree.setdefault(group, {})
            # Else there is a value where a table must be: it stays, and is refused by its name.
            if isinstance(table, dict):
                table[dotted(rest) if group == "kafka" else rest] = value
        else:
            tree[group] = value
    return tree
