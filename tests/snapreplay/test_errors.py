"""The error tree: the class is the reaction, and every error says what to do."""

import importlib
import pkgutil

import snapreplay
from snapreplay.errors import SnapreplayError


def every_error() -> list[type[SnapreplayError]]:
    """All classes of the tree, in any module."""
    for module in pkgutil.walk_packages(snapreplay.__path__, "snapreplay."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: list[type[SnapreplayError]] = []
    waiting = [SnapreplayError]
    while waiting:
        children = waiting.pop().__subclasses__()
        found += children
        waiting += children
    return found


def test_every_error_has_a_reaction():
    """A program knows what to do without reading the message: not one class is without."""
    without = [error.__qualname__ for error in every_error() if not hasattr(error, "reaction")]
    assert without == []


def test_a_subclass_never_changes_the_reaction_of_its_parent():
    """`except StopError` must catch everything that stops, and nothing else."""
    changed = [
        error.__qualname__
        for error in every_error()
        for parent in error.__bases__
        if hasattr(parent, "reaction") and parent.reaction is not error.reaction
    ]
    assert changed == []
