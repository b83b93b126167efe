"""The pages of the reference that are made from the code: `python -m tests.docs.reference` writes them."""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from typer.core import TyperGroup
from typer.main import get_command

import snapreplay
from snapreplay.api.cli.root import app
from snapreplay.errors import Reaction, SnapreplayError
from snapreplay.service.config.table import Table
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.metrics import DocumentCollector
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.core.assignment import Copies
from tests.support.fake_control import FACTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODULES = ["snapreplay", "snapreplay.errors", "snapreplay.testing", "snapreplay.spark", "snapreplay.windows"]
_MADE = "This page is made from the code by `python -m tests.docs.reference`; a test compares."
_SECTION = re.compile(r"(Args|Attributes|Raises(?: \(when made\))?):")

Lines = Iterator[str]


# ----------------------------------------------------------------------- the command line


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command of the tree with its whole name."""
    tree: Any = get_command(app)
    for name, command in tree.commands.items():
        if isinstance(command, TyperGroup):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


def cli_page() -> str:
    """Make docs/cli-options.md."""
    lines = [
        "# The options of every command\n",
        f"The arguments and options of every command, with their defaults. {_MADE}\n",
        "[cli.md](cli.md) explains the commands, their outcomes and exit codes. Every command has `--help`, and"
        " `--debug` before its name shows the traceback of an error.\n",
    ]
    for name, command in commands():
        lines.append(f"## `snapreplay {name}`\n")
        lines.append(f"{_prose(command.help)}\n")
        shown = [_option(each) for each in command.params if not each.hidden and each.name != "help"]
        if shown:
            lines += ["| argument or option | value | default | meaning |", "| --- | --- | --- | --- |", *shown, ""]
    return "\n".join(lines)


def _option(given: Any) -> str:
    is_argument = not given.opts[0].startswith("-")
    names = [given.metavar or given.name.upper()] if is_argument else [*given.opts, *given.secondary_opts]
    default = "required" if given.required else _default(given)
    cells = (", ".join(f"`{name}`" for name in names), _value(given), default, _prose(given.help or ""))
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _value(given: Any) -> str:
    kind = given.type_descriptor.annotation
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(kind))
    if getattr(given, "is_flag", False):
        return ""
    bounds = [f"{sign} {limit:,}" for sign, limit in (("≥", given.min), ("≤", given.max)) if limit is not None]
    return ", ".join([given.metavar or kind.__name__, *bounds])


def _default(given: Any) -> str:
    value = given.default
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or value is False or value == "" or callable(value):
        return ""
    return f"`{given.opts[0]}`" if value is True else f"{value:,}" if isinstance(value, int) else f"{value}"


# --------------------------------------------------------------------------------- Python


def python_page() -> str:
    """Make docs/python.md."""
    lines = [
        "# The Python API\n",
        f"The signature and the description of every public name of the Python package. {_MADE}\n",
        "Every other module is internal and may change at any time. A public name is removed only after a minor version"
        " in which its use gives a `DeprecationWarning`. All names are typed: mypy and pyright in strict mode accept"
        " the examples of these pages. [settings.md](settings.md) has every setting.\n",
    ]
    for module in MODULES:
        lines.append(f"## `{module}`\n")
        found = importlib.import_module(module)
        for name in sorted(found.__all__, key=str.lower):
            lines += _described(module, name, getattr(found, name))
    return "\n".join(lines)


def _described(module: str, name: str, value: Any) -> Lines:
    if name.startswith("__") or (
        module == "snapreplay" and name in importlib.import_module("snapreplay.errors").__all__
    ):
        return
    yield f"### `{name}`\n"
    if isinstance(value, type) and issubclass(value, Table):
        yield f"{_first_sentence(value)} Its names are those of [settings.md](settings.md).\n"
    elif inspect.isclass(value):
        yield from _of_class(name, value)
    elif callable(value):
        yield f"`{_signature(name, value)}`\n"
        yield from _docstring(value)
    else:
        yield f"A `{type(value).__name__}`.\n"


def _of_class(name: str, kind: type) -> Lines:
    if issubclass(kind, enum.Enum):
        yield from _docstring(kind)
        yield f"Its values are {', '.join(f'`{each.name}`' for each in kind)}.\n"
        return
    if not getattr(kind, "_is_protocol", False):
        yield f"`{_signature(name, kind)}`\n"
    yield from _docstring(kind)
    for member, value in _members(kind):
        if isinstance(value, property):
            yield f"**`{member}`**: `{_annotation(value.fget)}`\n"
        else:
            yield f"**`{_signature(member, value)}`**\n"
        yield from _docstring(value)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public functions and properties that the package defines, in their order; static ones as functions."""
    seen: dict[str, Any] = {}
    for base in (each for each in reversed(kind.__mro__) if each.__module__.partition(".")[0] == "snapreplay"):
        for name, value in vars(base).items():
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                seen[name] = plain
    yield from seen.items()


def _annotation(function: Any) -> str:
    return _text(inspect.signature(function).return_annotation)


def _text(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _signature(name: str, function: Any) -> str:
    try:
        # A class that decides in `__new__` which class is made says in `__init__` what it takes.
        has_init = inspect.isclass(function) and not issubclass(function, enum.Enum) and "__new__" in vars(function)
        signature = inspect.signature(function.__init__ if has_init and "__init__" in vars(function) else function)
    except (TypeError, ValueError):
        return name
    words, is_keyword = list[str](), False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            words.append("*")
        is_keyword = is_keyword or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        words.append(_parameter(each))
    asynchronous = "await " if inspect.iscoroutinefunction(function) else ""
    returned = "" if inspect.isclass(function) else _text(signature.return_annotation)
    return f"{asynchronous}{name}({', '.join(words)})" + (f" -> {returned}" if returned else "")


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" * (2 if each.kind is each.VAR_KEYWORD else each.kind is each.VAR_POSITIONAL)
    kind = _text(each.annotation)
    typed = f"{stars}{each.name}" + (f": {kind}" if kind else "")
    if each.default is each.empty:
        return typed
    default = each.default.value if isinstance(each.default, enum.Enum) else each.default
    shown = "Any" if default is Any else repr(default)
    return f"{typed} = {'…' if ' at 0x' in shown or '(' in shown.replace('()', '') else shown}"


def _first_sentence(value: Any) -> str:
    return _prose((inspect.getdoc(value) or "").split("\n\n")[0])


def _docstring(value: Any) -> Lines:
    """Yield the paragraphs of a docstring; each section becomes a list of its names."""
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        head, *rest = paragraph.splitlines() or [""]
        section = _SECTION.fullmatch(head)
        if section is None:
            yield f"{_prose(paragraph)}\n"
            continue
        yield f"{section[1]}:\n"
        yield "\n".join(f"- {each}" for each in _items(rest)) + "\n"


def _items(lines: Sequence[str]) -> Lines:
    items: list[list[str]] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line.startswith(" "):
            items[-1].append(line)
        else:
            items.append([line])
    for item in items:
        names, colon, text = " ".join("\n".join(item).split()).partition(": ")
        yield f"`{names}`: {_prose(text)}" if colon else _prose(names)


def _prose(text: str) -> str:
    """Return it as one line, with nothing that Markdown would take for a tag or for emphasis."""
    joined = " ".join(text.split())
    parts = re.split(r"(`[^`]*`)", joined)
    return "".join(part if part.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts)


# --------------------------------------------------------------------------------- errors

REACTIONS = {
    Reaction.RETRY: "It is temporary: a partition retries with back-off and needs no restart. A call may be repeated.",
    Reaction.REBUILD: "The recovery uses an older snapshot or the other mode, or the partition is FAILED.",
    Reaction.RELEASE: "This process gives the partition up. Its owner continues.",
    Reaction.STOP: "It needs a person: a partition is FAILED, a command ends.",
    Reaction.HANDLER_POLICY: "`errors.policy` decides: `fail` stops the partition, `dead_letter` skips the record.",
    Reaction.REFUSE: "The call or the command is refused, and nothing was changed.",
}
SAFE = "Safe: "
"""The paragraph of a docstring that says what an operator may do meanwhile."""


def errors_page() -> str:
    """Make docs/errors.md."""
    lines = [
        "# Errors\n",
        "Each error says what it means, what the partition does, and what is safe meanwhile. A message ends with a"
        " hint, which has the command to type.\n",
        f"{_MADE}\n",
    ]
    for module in pkgutil.walk_packages(snapreplay.__path__, "snapreplay."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name, kinds in sorted(_errors().items()):
        lines += [f"## {name}\n"]
        for kind in kinds:
            meaning, *rest = [_prose(each) for each in (inspect.getdoc(kind) or "").split("\n\n")]
            lines += [f"{meaning} {REACTIONS[kind.reaction]}\n"]
            lines += [f"{each}\n" for each in rest if not each.startswith(SAFE) and not _SECTION.match(each)]
            if safe := _safe(kind):
                lines += [f"**Safe.** {safe}\n"]
    return "\n".join(lines)


def _errors() -> dict[str, list[type[SnapreplayError]]]:
    """Return the errors that a user can meet, by name; without those that only group others."""
    found: dict[str, list[type[SnapreplayError]]] = {}
    below = [SnapreplayError]
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        if kind.__module__.startswith("snapreplay.") and "reaction" in dir(kind) and kind.__name__[0] != "_":
            found.setdefault(kind.__name__, []).append(kind)
    return {name: sorted(set(kinds), key=lambda each: each.__module__) for name, kinds in found.items()}


def _safe(kind: type) -> str:
    """Return what is safe; an error without a paragraph of its own has that of its nearest base."""
    paragraphs = [each for base in kind.__mro__ for each in (base.__doc__ or "").split("\n\n")]
    own = (_prose(each).removeprefix(SAFE) for each in paragraphs if each.strip().startswith(SAFE))
    return next(own, "")


# -------------------------------------------------------------------------------- metrics

LINKS = {
    "snapreplay_drained": ("drained", "operators.md#drain-a-process-before-maintenance"),
    "snapreplay_paused": ("paused", "operators.md#pause-a-partition"),
    "snapreplay_input_high_watermark_lag_records": ("open transactions", "http.md#lags"),
    "snapreplay_state_bytes": ("memory", "state.md#memory"),
    "snapreplay_state_largest_entry_bytes": ("has a limit", "state.md#the-size-of-an-entry"),
    "snapreplay_restore_predicted_seconds": ("objective", "operators.md#meet-a-recovery-time-objective"),
    "snapreplay_copies_missing": ("too few", "operators.md#there-are-fewer-copies-than-wanted"),
    "snapreplay_standbys": ("Warm copies", "standbys.md"),
    "snapreplay_proposals_total": ("reason", "http.md#adopting-a-proposed-snapshot"),
    "snapreplay_drills_total": ("Drills", "operators.md#drill-a-restore"),
    "snapreplay_takeovers_total": ("taken over", "standbys.md#before-the-session-timeout"),
}
"""The words in the text of a metric that lead to a page."""


def metrics_page() -> str:
    """Make docs/metrics.md: its sentences are its own, its tables are the code's."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    present = [(each.name, each.type, each._labelnames, each.documentation) for each in _present()]
    wrappers = [each for each in EVENTS._collector_to_names if isinstance(each, MetricWrapperBase)]
    events = [(each._name, each._type, each._labelnames, each._documentation) for each in wrappers]
    for name, metrics in (("present", present), ("events", events)):
        begin, end = f"<!-- drawn: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = page.partition(begin)
        rows = [
            "| name | type | labels | meaning |",
            "| --- | --- | --- | --- |",
            *(_metric(*each) for each in metrics),
        ]
        page = before + begin + "\n".join(rows) + f"\n{end}" + rest.partition(end)[2]
    return page


def _present() -> Iterator[Any]:
    return DocumentCollector(StatusDocument(FACTS, copies=Copies()), CollectorRegistry()).collect()


def _metric(name: str, kind: str, labels: Sequence[str], text: str) -> str:
    name = f"{name}_total" if kind == "counter" else name
    words, target = LINKS.get(name, ("", ""))
    assert words in text, f"{name}: {words}"
    linked = text.replace(words, f"[{words}]({target})", 1) if words else text
    return f"| `{name}` | {kind} | {', '.join(labels)} | {linked} |"


PAGES = {
    DOCS / "cli-options.md": cli_page,
    DOCS / "errors.md": errors_page,
    DOCS / "python.md": python_page,
    DOCS / "metrics.md": metrics_page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
