"""The tokens that processes of an app ask for: a file with one a line, which is read again when it changes."""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from snapreplay.errors import UsageError

log = logging.getLogger("snapreplay.http")

_FORM = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")


def tokens_in(path: Path) -> tuple[str, ...]:
    """Read a file of tokens.

    Raises:
        UsageError: it cannot be read, or holds something else. What it holds is in no message.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise _wrong(path, f"cannot be read: {why}") from None
    found = tuple(line for line in lines if line)
    if not found:
        raise _wrong(path, "holds no token")
    for number, line in enumerate(lines, 1):
        if line and not _FORM.fullmatch(line):
            raise _wrong(path, f"line {number} is no token of 16 to 512 letters, digits or -._~+/")
    return found


def authorization(token: str) -> Mapping[str, str]:
    """Make the header that sends a token."""
    return {"Authorization": f"Bearer {token}"}


def _wrong(path: Path, why: str) -> UsageError:
    return UsageError(
        f"http.token_file={path}: {why}",
        hint=f"make one: `openssl rand -hex 32 > {path}`; the same for all processes of the app",
    )


class Tokens:
    """Those of a file; the first one is sent, and any is accepted. Without a file, none is sent or needed."""

    def __init__(self, path: str) -> None:
        """Take `path`; empty: there is no file."""
        self._path = Path(path) if path else None
        self._version: tuple[int, ...] = ()
        self._tokens: tuple[str, ...] = ()

    @property
    def are_needed(self) -> bool:
        """Whether a request needs one."""
        return self._path is not None

    def accept(self, authorization: str) -> bool:
        """Say whether the header names a token of the file. The time that it takes tells nothing of them."""
        scheme, _, given = authorization.partition(" ")
        matches = [hmac.compare_digest(given.strip().encode(), each.encode()) for each in self._now()]
        return any(matches) and scheme.lower() == "bearer"

    def headers(self) -> Mapping[str, str]:
        """Make the header for a request to another process of the app."""
        tokens = self._now()
        return authorization(tokens[0]) if tokens else {}

    def _now(self) -> tuple[str, ...]:
        """Read the file, if it is another one than before. One that cannot be read changes nothing, and is logged."""
        if self._path is None:
            return ()
        try:
            found = self._path.stat()
            version: tuple[int, ...] = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            version = (-1,)
        if version != self._version:
            self._version = version
            try:
                self._tokens = tokens_in(self._path)
            except UsageError as error:
                log.error("%s; the tokens from before stay", error.message)  # noqa: TRY400 - its text says all
        return self._tokens


NO_TOKENS = Tokens("")
