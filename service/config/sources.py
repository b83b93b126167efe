"""Where settings come from: trees of values from the environment, a TOML file, dotted names."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from snapreplay.errors import UsageError
from snapreplay.service.config.kafka_properties import dotted

ENV_PREFIX = "SNAPREPLAY_"
DEFAULT_FILE = "snapreplay.toml"

Tree = dict[str, Any]


def merged(*trees: Tree) -> Tree:
    """Each value from the first tree that has it, table by table."""
    whole: Tree = {}
    for tree in reversed(trees):
        for name, value in tree.items():
            table = whole.get(name)
            are_tables = isinstance(table, dict) and isinstance(value, dict)
            whole[name] = table | value if are_tables else value
    return whole


def file_tree(path: Path | None) -> Tree:
    if path is None and not Path(DEFAULT_FILE).is_file():
        return {}
    path = path or Path(DEFAULT_FILE)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"settings file {path} (--config) cannot be read: {reason}", path=str(path)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"settings file {path} is not valid TOML: {error}", path=str(path)
        ) from None
    if isinstance(tree.get("kafka"), dict):
        tree["kafka"] = _flatten(tree["kafka"])
    return tree


def _flatten(tree: Mapping[str, object], prefix: str = "") -> Tree:
    """`bootstrap.servers = …` without quotes is a nested table in TOML: back to dotted names."""
    flat: Tree = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[dotted(f"{prefix}{name}")] = value
    return flat


def environment_tree(environment: Mapping[str, str], known: Collection[str]) -> Tree:
    """SNAPREPLAY_HTTP__PORT=0 → {"http": {"port": "0"}}.

    A name without `__` that resembles no setting is ignored: Kubernetes sets SNAPREPLAY_PORT and the like for a
    Service called snapreplay.
    """
    given: dict[str, object] = {}
    for name, value in environment.items():
        if not name.upper().startswith(ENV_PREFIX):
            continue
        path = name[len(ENV_PREFIX) :].lower().split("__")
        if len(path) > 1 or difflib.get_close_matches(path[0], known, n=1, cutoff=0.8):
            given[".".join(path)] = value
    return unfold(given)


def unfold(flat: Mapping[str, object]) -> Tree:
    """Dotted names → a tree; everything after `kafka.` is one name. Nested mappings pass as they are."""
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
