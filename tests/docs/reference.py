"""The pages of the reference that are made from the code: `python -m tests.docs.reference` writes them."""

import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from typer.core import TyperGroup
from typer.main import get_command

import snapreplay
from snapreplay.api.cli import options
from snapreplay.api.cli.explaining import REACTIONS, Explained, errors
from snapreplay.api.cli.operation_commands import OUTCOME
from snapreplay.api.cli.root import app
from snapreplay.errors import Reaction, StopError, UsageError
from snapreplay.service.config.table import Table
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.control.metrics import DocumentCollector
from snapreplay.service.control.protocol import StatusDocument
from snapreplay.service.core.assignment import Copies
from tests.support.fake_control import FACTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODULES = ["snapreplay", "snapreplay.testing", "snapreplay.spark"]
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


COMMON: tuple[Any, ...] = (
    *(options.Config, options.Overrides, options.BootstrapServers, options.HttpPort, options.AskedPort, options.Url),
    *(options.TokenFile, options.Output, options.LogLevel, options.LogForm, options.Wait),
)
"""Explained once, by hand."""
SEE = {
    "dev": "#dev",
    "feed": "#feed-and-tail",
    "tail": "#feed-and-tail",
    "init": "#init---state-of",
    "run": "#the-first-start",
    "restore-status": "#restore-status",
    "plan": "http.md#restore-plan",
    "lag": "http.md#lags",
    "get": "http.md#entries-of-the-state",
    "adopt": "http.md#adopting-a-proposed-snapshot",
    "retry": "#retry",
    "pause": "operators.md#pause-a-partition",
    "drill": "operators.md#drill-a-restore",
    "drain": "operators.md#drain-a-process-before-maintenance",
    "cancel": "operators.md#cancel-an-operation",
    "processes": "http.md#one-process-or-the-whole-app",
    "history": "http.md#history-of-a-partition",
    "inputs": "#inputs",
    "upgrade": "upgrades.md#another-type-or-meaning-of-stored-values",
    "accept": "#accept",
    "patch": "#patch",
    "redrive": "#redrive",
    "doctor": "#doctor",
    "reset": "#reset",
    "delete": "#delete",
    "savepoint create": "operators.md#savepoints",
    "audit": "spark.md#audit",
    "compact": "spark.md#compact",
    "explain": "errors.md",
}
"""Where there is more about a command."""


def cli_page() -> str:
    """Make docs/cli.md: the list of commands is the code's, the rest its own."""
    lines = [line for name, command in commands() for line in _command(name, command)]
    return _drawn((DOCS / "cli.md").read_text(encoding="utf-8"), "commands", lines)


def _drawn(page: str, name: str, lines: Sequence[str]) -> str:
    begin, end = f"<!-- drawn: {name} -->\n", f"<!-- end: {name} -->\n"
    before, _, rest = page.partition(begin)
    return before + begin + "\n".join(lines) + f"\n{end}" + rest.partition(end)[2]


def _command(name: str, command: Any) -> Lines:
    given = [each for each in command.params if not each.hidden and each.name != "help"]
    arguments = [_metavar(each) for each in given if not each.opts[0].startswith("-")]
    yield f"### `{' '.join(['snapreplay', name, *arguments])}`\n"
    text = _prose(command.help.removesuffix(OUTCOME))
    yield f"{text} [More]({SEE[name]}).\n" if name in SEE else f"{text}\n"
    own = [each for each in given if not _is_common(each) and _metavar(each).strip("[]") not in PLAIN]
    if own:
        yield "\n".join(_option(each) for each in own) + "\n"
    common = [each.opts[0] for each in given if _is_common(each)]
    for kind, names in KINDS.items():
        if set(names) <= set(common):
            common = [*(each for each in common if each not in names), kind]
    if common:
        yield f"{'Also' if own else 'Options:'} {', '.join(map(_named_option, common))}.\n"


KINDS = {
    "cluster options": ("--bootstrap-servers", "--config", "--set", "--output"),
    "service options": ("--url", "--http-port", "--config", "--token-file", "--output"),
}
"""Options that many commands have in common."""


def _named_option(name: str) -> str:
    return f"[{name}](#options-with-one-meaning-everywhere)" if name in KINDS else f"`{name}`"


PLAIN = {"APP", "APP...", "TOPIC", "PARTITION", "ID"}
"""Arguments whose name says all."""


def _is_common(given: Any) -> bool:
    if given.opts[0] in ("--dry-run", "--reason") or (given.opts[0] == "--yes" and given.is_flag):
        return True
    known = (each.__metadata__[0] for each in COMMON)
    return any(each.names.split() == given.opts and given.help.startswith(each.help) for each in known)


def _metavar(given: Any) -> str:
    return str(given.metavar or given.name.upper())


def _option(given: Any) -> str:
    is_argument = not given.opts[0].startswith("-")
    names = [_metavar(given)] if is_argument else [*given.opts, *given.secondary_opts]
    default = "required" if given.required and not is_argument else _default(given)
    facts = ", ".join(filter(None, ["" if is_argument else _value(given), default and f"default {default}"]))
    shown = ", ".join(f"`{name}`" for name in names)
    return f"- {shown}{f' ({facts})' if facts else ''}: {_prose(given.help or '')}".replace(
        "default required", "required"
    )


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


NOT_FOR_USERS = {
    "AsyncCall": {"call_of", "succeeded", "failed"},
    "App": {
        "handlers",
        "timers",
        "calls",
        "upgrades",
        "input_names",
        "internal_names",
        "broadcast_names",
        "broadcast_stores",
        "input_of",
        "patterns",
        "declaration",
        "input_named",
        "upgrades_from",
        "upgraded_fields",
        "fields_read",
        "new_store",
        "validate",
    },
    "HttpServer": {"bind", "share", "serve", "close"},
    "MapView": {"position"},
    "StoresView": {"position"},
    "Out": {
        "learn_limits",
        "carry",
        "note_late",
        "mark",
        "cut",
        "hashing",
        "take_late",
        "take",
        "staged",
        "input_key",
        "calls",
        "at_ms",
    },
    "Sessions": {"close", "check"},
    "Table": {"close", "check"},
    "Windows": {"close", "check"},
    "Topic": {"put_in_front"},
}
"""Members that only the package itself calls."""
NOT_MADE_BY_USERS = {"AsyncCall", "MapView", "Out", "Sessions", "StoresView", "Table", "View", "Windows"}
"""Classes whose constructor only the package itself calls."""


def python_page() -> str:
    """Make docs/python.md."""
    lines = [
        "# The Python API\n",
        "The public names of the Python package.\n",
        "Every other module is internal and may change at any time. A public name is removed only after a minor version"
        " in which its use gives a `DeprecationWarning`. All names are typed: mypy and pyright in strict mode accept"
        " the examples of these pages. A wrong call raises `UsageError`, which says what is wrong. [Errors](errors.md)"
        " are in `snapreplay.errors`, most also in `snapreplay`.\n",
    ]
    for module in MODULES:
        lines.append(f"## `{module}`\n")
        found = importlib.import_module(module)
        named = {name: getattr(found, name) for name in sorted(found.__all__, key=str.lower) if name[:2] != "__"}
        settings = [name for name, value in named.items() if isinstance(value, type) and issubclass(value, Table)]
        codecs = [name for name, value in named.items() if isinstance(value, snapreplay.Codec)]
        for name, value in named.items():
            if name not in settings + codecs and not (isinstance(value, type) and issubclass(value, Exception)):
                lines += _described(name, value)
        for title, names in (("Codecs", codecs), ("Settings", settings)):
            if names:
                lines.append(f"**{title}**: {', '.join(f'`{name}`' for name in names)}. {_ABOUT[title]}\n")
    return "\n".join(lines)


_ABOUT = {
    "Codecs": "[Keys and values](records.md) explains them.",
    "Settings": "Tables of [settings](settings.md), whose attributes are the settings' names. `Settings` has them all.",
}


def _described(name: str, value: Any) -> Lines:
    yield f"### `{name}`\n"
    if inspect.isclass(value):
        yield from _of_class(name, value)
    else:
        yield f"`{_signature(name, value)}`\n"
        yield from _docstring(value)


def _of_class(name: str, kind: type) -> Lines:
    if issubclass(kind, enum.Enum):
        yield from _docstring(kind)
        yield f"Its values are {', '.join(f'`{each.name}`' for each in kind)}.\n"
        return
    if not getattr(kind, "_is_protocol", False) and name not in NOT_MADE_BY_USERS:
        yield f"`{_signature(name, kind)}`\n"
    hidden = NOT_FOR_USERS.get(name, set())
    yield from _docstring(kind, hidden)
    for member, value in _members(kind):
        if member in hidden:
            continue
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


_SHORT = {
    "Callable[[Any, Any], Any]": "Callable",
    "collections.abc.": "",
    "typing.": "",
    "Iterable[tuple[str, bytes | None]]": "Headers",
    "Sequence[tuple[str, bytes | None]] | None": "Headers",
    "[Any, Any]": "",
    "[Any]": "",
    "ForwardRef('": "",
    "')": "",
}
"""What a signature leaves out: it would fill more than a line."""


def _text(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    if get_origin(annotation) is Union:
        return " | ".join("None" if each is type(None) else _text(each) for each in get_args(annotation))
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    return text


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
    returned = "" if returned.startswith("Callable[[") else returned  # of a decorator: its argument
    return f"{asynchronous}{name}({', '.join(words)})" + (f" -> {returned}" if returned else "")


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" * (2 if each.kind is each.VAR_KEYWORD else each.kind is each.VAR_POSITIONAL)
    kind = _text(each.annotation)
    typed = f"{stars}{each.name}" + (f": {kind}" if kind else "")
    if each.default is each.empty:
        return typed
    default = each.default
    if isinstance(default, enum.Enum):  # with the type Any it marks a missing argument
        return f"{typed} = {'…' if kind == 'Any' else f'{kind}.{default.name}'}"
    shown = "Any" if default is Any else repr(default).replace("<factory>", "{}")
    return f"{typed} = {'…' if ' at 0x' in shown or '(' in shown.replace('()', '') else shown}"


def _docstring(value: Any, hidden: Collection[str] = ()) -> Lines:
    """Yield the paragraphs of a docstring; its sections become one list of names, without the hidden ones."""
    items = list[str]()
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        head, *rest = paragraph.splitlines() or [""]
        if section := _SECTION.fullmatch(head):
            raises = "Raises " if section[1].startswith("Raises") else ""
            shown = (each for each in _items(rest) if each.split("`")[1] not in {"UsageError", *hidden})
            items += [f"- {raises}{re.sub('^As ', 'as ', each) if raises else each}" for each in shown]
            continue
        yield from _listed(items)
        items = []
        if head.startswith("- "):
            yield "\n".join(f"- {_prose(each)}" for each in re.split(r"^- ", paragraph, flags=re.MULTILINE)[1:]) + "\n"
        elif head.startswith("    "):
            yield f"```python\n{textwrap.dedent(paragraph)}\n```\n"
        else:
            yield f"{_prose(paragraph)}\n"
    yield from _listed(items)


def _listed(items: Sequence[str]) -> Lines:
    if items:
        yield "\n".join(items) + "\n"


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

GROUPS = {
    Reaction.STOP: "An operator is needed",
    Reaction.RETRY: "Temporary",
    Reaction.REBUILD: "Another way is tried",
    Reaction.RELEASE: "Another process owns the partition",
    Reaction.HANDLER_POLICY: "A record cannot be applied",
    Reaction.REFUSE: "Refused",
}


def errors_page() -> str:
    """Make docs/errors.md."""
    lines = [
        "# Errors\n",
        "Each error says what it means and what is safe meanwhile ([terms](how-it-works.md#terms)). `snapreplay explain"
        " NAME` prints the same. A message ends with a hint, which has the command to type.\n",
    ]
    found = errors().values()
    for reaction, title in GROUPS.items():
        lines += [f"## {title}\n", f"{REACTIONS[reaction]}\n"]
        in_group = [each for each in found if each.kind.reaction is reaction]
        lines += [f"Safe, unless an error says otherwise: {each.safe}\n" for each in in_group if each.kind in ROOTS]
        for each in in_group:
            lines += [f"### {each.kind.__name__}\n", f"{_prose(each.meaning)}{_safe(each)}\n"]
            lines += [f"{_prose(text)}\n" for text in each.details]
    assert len([line for line in lines if line.startswith("### ")]) == len(found)
    return "\n".join(lines)


ROOTS = (StopError, UsageError)
"""What is safe after these is safe after all errors of their groups that say nothing else."""


def _safe(each: Explained) -> str:
    if not each.safe or each.safe_from in ROOTS:
        return ""
    if each.safe_from is each.kind:
        return f" **Safe:** {_prose(each.safe)}"
    name = each.safe_from.__name__
    return f" **Safe:** as [{name}](#{name.lower()})."


# -------------------------------------------------------------------------------- metrics

LINKS = {
    "snapreplay_drained": ("drained", "operators.md#drain-a-process-before-maintenance"),
    "snapreplay_calls_pending": ("Calls", "recipes.md#call-another-service"),
    "snapreplay_failures_total": ("`reaction`", "errors.md"),
    "snapreplay_paused": ("paused", "operators.md#pause-a-partition"),
    "snapreplay_input_high_watermark_lag_records": ("open transactions", "http.md#lags"),
    "snapreplay_state_bytes": ("memory", "state.md#memory"),
    "snapreplay_state_largest_entry_bytes": ("has a limit", "state.md#the-size-of-an-entry"),
    "snapreplay_restore_predicted_seconds": ("objective", "operators.md#meet-a-recovery-time-objective"),
    "snapreplay_copies_missing": ("too few", "operators.md#there-are-fewer-copies-than-wanted"),
    "snapreplay_standbys": ("Warm copies", "operators.md#standbys"),
    "snapreplay_proposals_total": ("reason", "http.md#adopting-a-proposed-snapshot"),
    "snapreplay_drills_total": ("Drills", "operators.md#drill-a-restore"),
    "snapreplay_takeovers_total": ("taken over", "operators.md#before-the-session-timeout"),
}
"""The words in the text of a metric that lead to a page."""


def metrics_page() -> str:
    """Make the tables of docs/runbook.md: its sentences are its own, its tables are the code's."""
    page = (DOCS / "runbook.md").read_text(encoding="utf-8")
    present = [(each.name, each.type, each._labelnames, each.documentation) for each in _present()]
    wrappers = [each for each in EVENTS._collector_to_names if isinstance(each, MetricWrapperBase)]
    events = [(each._name, each._type, each._labelnames, each._documentation) for each in wrappers]
    for name, metrics in (("present", present), ("events", events)):
        head = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"]
        page = _drawn(page, name, [*head, *(_metric(*each) for each in metrics)])
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
    DOCS / "cli.md": cli_page,
    DOCS / "errors.md": errors_page,
    DOCS / "python.md": python_page,
    DOCS / "runbook.md": metrics_page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
