"""The bearer tokens of the HTTP API: a file with one per line, read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from snapreplay.api.renewed import Renewed
from snapreplay.errors import UsageError
from snapreplay.service.control.operations import Role

_LINE = re.compile(
    r"(?:(?P<role>viewer|operator|admin):(?:(?!sha256:)(?P<name>[A-Za-z0-9._@-]{1,64}):)?)?"
    r"(?:sha256:(?P<hash>[0-9a-f]{64})|(?P<token>[A-Za-z0-9._~+/-]{16,512}=*))"
)


def escaped(name: str) -> str:
    """Return a name that somebody else has chosen as it may stand in a line of the log."""
    return ascii(name)[1:-1]


class Asker(NamedTuple):
    """The name and role of whoever asks. The log has the name."""

    name: str
    role: Role


class Token(NamedTuple):
    """A line of the file. `text` is empty where the file has only its hash."""

    asker: Asker
    digest: bytes
    text: str


def tokens_in(path: Path) -> tuple[Token, ...]:
    """Read a file of tokens.

    Raises:
        UsageError: it cannot be read, or holds something else. What it holds is in no message.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise _wrong(path, f"cannot be read: {why}") from None
    found = tuple(_token(path, number, line) for number, line in enumerate(lines, 1) if line)
    if not found:
        raise _wrong(path, "holds no token")
    if len({each.digest for each in found}) < len(found):
        raise _wrong(path, "has a token in two lines: its role is not certain")
    return found


def _token(path: Path, number: int, line: str) -> Token:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise _wrong(
            path,
            f"line {number} is no token of 16 to 512 letters, digits or -._~+/, nor sha256:HASH, nor one of them after "
            "ROLE: or ROLE:NAME: with the role viewer, operator or admin",
        )
    asker = Asker(parts["name"] or f"line {number}", Role[(parts["role"] or "admin").upper()])
    text = parts["token"] or ""
    return Token(asker, bytes.fromhex(parts["hash"]) if parts["hash"] else _digest(text), text)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def sent(tokens: Iterable[Token], least: Role = Role.VIEWER) -> str:
    """Return the first token with at least this role that is no hash; empty: there is none."""
    return next((each.text for each in tokens if each.text and each.asker.role >= least), "")


def authorization(token: str) -> Mapping[str, str]:
    """Make the header that sends a token."""
    return {"Authorization": f"Bearer {token}"}


def _wrong(path: Path, why: str) -> UsageError:
    return UsageError(
        f"http.token_file={path}: {why}",
        hint=f"make one: `openssl rand -hex 32 > {path}`; the same for all processes of the app",
    )


class HttpTokens:
    """The tokens of a file: any is accepted, and the first of an admin is sent. Without a file, none is needed."""

    def __init__(self, path: str, *, needs_certificate: bool = False) -> None:
        """Take `path`; empty: there is no file. `needs_certificate`: whether a client must show a certificate."""
        self.needs_certificate = needs_certificate
        self._path = Path(path) if path else None
        self._tokens = Renewed[tuple[Token, ...]]((path,), lambda: tokens_in(Path(path)), ())

    @property
    def are_needed(self) -> bool:
        """Whether a request needs one."""
        return self._path is not None

    def asker(self, authorization: str) -> Asker | None:
        """Say whose token the header has; None: it has none that is good. The time that it takes tells nothing of the
        file."""
        scheme, _, given = authorization.partition(" ")
        digest = _digest(given.strip())
        matches = [each.asker for each in self._now() if hmac.compare_digest(digest, each.digest)]
        return matches[0] if matches and scheme.lower() == "bearer" else None

    def headers(self) -> Mapping[str, str]:
        """Make the header for a request to another process of the app, which may have to do anything."""
        token = sent(self._now(), Role.ADMIN)
        return authorization(token) if token else {}

    def _now(self) -> tuple[Token, ...]:
        return self._tokens.now() if self._path else ()


NO_TOKENS = HttpTokens("")
