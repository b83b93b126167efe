"""The mutants: small changes that break one rule each, in the `*.txt` beside this file by the part of the scheme that
they break; and the scratch copy of the tree that they are applied to.

A paragraph is a mutant: its name and the rule that it breaks; the tests that should notice, as arguments for pytest;
and a hunk for each place that is changed. See `Patch` for what a hunk says.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.patch import Patch

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A mutant that its patches make of the source; some test among `tests` must fail then.

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


class Scratch:
    """A copy of the checkout in which trials are held one after the other: what they leave alone is compiled once."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutant-")
        self.root = Path(self._folder.name)
        self._at_s = time.time()
        _copy_checkout(self.root)

    def close(self) -> None:
        self._folder.cleanup()

    @contextmanager
    def changed(self, texts: Mapping[str, str]) -> Iterator[None]:
        """These files have another text inside of the block. Their times, which no two texts share, tell Python which
        one it has compiled."""
        self._at_s += 2
        before = {path: ((self.root / path).read_bytes(), (self.root / path).stat()) for path in texts}
        for path, text in texts.items():
            (self.root / path).write_text(text)
            os.utime(self.root / path, (self._at_s, self._at_s))
        try:
            yield
        finally:
            for path, (content, stat) in before.items():
                (self.root / path).write_bytes(content)
                os.utime(self.root / path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """Children, too, import the copy and not what is installed, and keep what they compile beside it."""
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
        # Mutants break Python, so Python does the work; the tests of the engine choose it themselves.
        return {**os.environ, **compiled, "PYTHONPATH": str(self.root), "SNAPREPLAY_ENGINE": "pure"}


def _copy_checkout(target: Path) -> None:
    """All files that are not ignored; the jars are linked, not copied."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    (target / ".jars").symlink_to(ROOT / ".jars")


PARTS = (
    "audits",
    "recoveries",
    "upgrades",
    "standbys",
    "calls",
    "commits",
    "snapshots",
    "ownerships",
    "identities",
    "inputs",
    "pointers",
    "schemas",
    "losses",
    "times",
    "pauses",
    "drains",
    "connections",
    "savepoints",
    "objectives",
    "http",
)


def _mutants(text: str) -> Iterator[Mutant]:
    _heading, *paragraphs = text.strip().split("\n\n")
    for paragraph in paragraphs:
        head, *hunks = paragraph.split("\n@ ")
        title, _, tests = head.partition("\n")
        name, _, rule = title.partition(": ")
        yield Mutant(name, rule, tuple(tests.split()), tuple(map(_patch, hunks)))


def _patch(hunk: str) -> Patch:
    where, *lines = hunk.split("\n")
    old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
    return Patch(where, old, new)


GALLERY = tuple(mutant for part in PARTS for mutant in _mutants(Path(__file__).with_name(f"{part}.txt").read_text()))
