"""A small change that breaks one rule, and the scratch copy of the tree that it is applied to."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.patch import Patch

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """What its patches make of the source; some test among `tests` must fail then.

    Attributes:
        rule: what is broken, as a reader of the design would say it.
        tests: arguments for pytest: files or single tests, the ones that should notice.
    """

    name: str
    rule: str
    tests: tuple[str, ...]
    patches: tuple[Patch, ...]

    def patched(self, root: Path = ROOT) -> Mapping[str, str]:
        """The files as the mutant leaves them, by path relative to `root`.

        Raises:
            PatchDoesNotFit: one of its patches does not fit.
        """
        texts: dict[str, str] = {}
        for patch in self.patches:
            text = texts.get(patch.path) or (root / patch.path).read_text()
            texts[patch.path] = patch.applied(text)
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
