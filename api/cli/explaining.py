"""`snapreplay explain`: what an error means, what a partition does about it, and what is safe meanwhile.

The text is that of the error's class. docs/errors.md is made from the same.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple

import snapreplay
from snapreplay.errors import Reaction, SnapreplayError, UsageError

REACTIONS = {
    Reaction.RETRY: "The cause may pass. A command or call may be repeated. A partition retries by itself (back-off).",
    Reaction.REBUILD: "The recovery uses an older snapshot or the other mode. If none is left, it fails.",
    Reaction.RELEASE: "This process gives the partition up. Its new owner continues.",
    Reaction.STOP: "A command or a call ends with it. A partition that has it is FAILED until an operator acts.",
    Reaction.HANDLER_POLICY: "`errors.policy` decides: `fail` stops the partition, `dead_letter` skips the record.",
    Reaction.REFUSE: "The call or the command is refused. The refused part has changed nothing.",
}
SAFE = "Safe: "
"""The beginning of a paragraph of a docstring that says what an operator may do meanwhile."""
_SECTION = re.compile(r"(Args|Attributes|Raises): *\n")


class Explained(NamedTuple):
    """The text of an error. `safe` may be empty; `safe_from` is the class whose docstring has it."""

    kind: type[SnapreplayError]
    meaning: str
    details: tuple[str, ...]
    safe: str
    safe_from: type


def explained(name: str) -> str:
    """Return what `snapreplay explain` prints.

    Raises:
        UsageError: there is no error of this name; names those like it.
    """
    found = errors()
    if name not in found:
        near = get_close_matches(name, found, n=3, cutoff=0.5)
        raise UsageError(
            f"there is no error {name!r}",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else "the page Errors of the documentation lists them all",
        )
    each = found[name]
    paragraphs = [each.meaning, *each.details, REACTIONS[each.kind.reaction], each.safe and SAFE + each.safe]
    return "\n\n".join(filter(None, paragraphs))


def errors() -> dict[str, Explained]:
    """Return the errors that a user can meet, by name. Imports every module that can be imported here."""
    for module in pkgutil.walk_packages(snapreplay.__path__, "snapreplay.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    found: dict[str, Explained] = {}
    below = [SnapreplayError]
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        if kind.__module__.startswith("snapreplay.") and "reaction" in dir(kind) and kind.__name__[0] != "_":
            found[kind.__name__] = _explained(kind)
    return dict(sorted(found.items()))


def _explained(kind: type[SnapreplayError]) -> Explained:
    meaning, *rest = _paragraphs(kind)
    details = tuple(each for each in rest if not each.startswith(SAFE))
    for base in kind.__mro__:
        for each in _paragraphs(base):
            if each.startswith(SAFE):
                return Explained(kind, meaning, details, each.removeprefix(SAFE), base)
    return Explained(kind, meaning, details, "", kind)


def _paragraphs(kind: type) -> list[str]:
    """Return the paragraphs of a class's own docstring, each as one line, without its sections."""
    text = inspect.cleandoc(vars(kind).get("__doc__") or "")
    return [" ".join(each.split()) for each in text.split("\n\n") if not _SECTION.match(each)]
