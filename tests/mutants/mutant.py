"""A small patch that breaks one rule, and the scratch copy of the tree that it is applied to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """`old` occurs exactly once in `path` and becomes `new`; some test among `tests` must fail then.

    Attributes:
        rule: what is broken, as a reader of the design would say it.
        tests: arguments for pytest: files or single tests, the ones that should notice.
        also: further replacements, (path, old, new), where one rule stands in two places.
    """

    name: str
    rule: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    also: tuple[tuple[str, str, str], ...] = ()

    @property
    def patches(self) -> tuple[tuple[str, str, str], ...]:
        return ((self.path, self.old, self.new), *self.also)


class PatchDoesNotFit(Exception):
    """The source has changed: the gallery must follow it."""


def patched(mutant: Mutant, root: Path = ROOT) -> Mapping[Path, str]:
    """The files as the mutant leaves them, by path relative to `root`.

    Raises:
        PatchDoesNotFit: an `old` text does not occur exactly once.
    """
    texts: dict[Path, str] = {}
    for name, old, new in mutant.patches:
        path = Path(name)
        text = texts.get(path) or (root / path).read_text()
        if text.count(old) != 1:
            raise PatchDoesNotFit(f"{mutant.name}: {text.count(old)} times in {path}: {old!r}")
        texts[path] = text.replace(old, new)
    return texts


def scratch_copy(target: Path) -> None:
    """All files of the checkout that are not ignored; the jars are linked, not copied."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    (target / ".jars").symlink_to(ROOT / ".jars")


def environment(scratch: Path) -> dict[str, str]:
    """Children, too, import the copy and not what is installed."""
    return {**os.environ, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
