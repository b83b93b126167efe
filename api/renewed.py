"""Reads files, and reads them again when they change, so that secrets are replaced without a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from snapreplay.errors import UsageError

log = logging.getLogger("snapreplay.http")

T = TypeVar("T")


class Renewed(Generic[T]):
    """The content of files. While they are of no use, what was read before stays, and the log says so once."""

    def __init__(self, files: Iterable[str], read: Callable[[], T], before: T | None = None) -> None:
        """Take `read`, which raises UsageError, and `before`: what there is until it has succeeded. None: a first
        reading that fails is refused."""
        self._files = tuple(filter(None, files))
        self._read = read
        self._version: object = None
        self._value = before

    def now(self) -> T:
        """Return what the files hold now.

        Raises:
            UsageError: there is nothing from before.
        """
        version = [_version(each) for each in self._files]
        if version != self._version or self._value is None:
            self._version = version
            try:
                self._value = self._read()
            except UsageError as error:
                if self._value is None:
                    raise
                log.error("%s; what was read before stays", error.message)  # noqa: TRY400 - its text says all
        return self._value


def _version(file: str) -> tuple[int, ...]:
    try:
        found = Path(file).stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
