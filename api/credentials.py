"""The tokens and certificates of the HTTP API, in files that are read again when they change: so secrets are replaced
without a restart. TLS of the API and of requests to other processes: renewed certificates count from the next
connection on."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from snapreplay.errors import UsageError
from snapreplay.service.control.operations import Role

if TYPE_CHECKING:  # it is slow to import, and probes wait for this module
    from snapreplay.service.config.groups import HttpSettings


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
        """Return what the files hold now. Raises UsageError: there is nothing from before."""
        version = [_version(each) for each in self._files]
        if version != self._version or self._value is None:
            self._version = version
            try:
                self._value = self._read()
            except UsageError as error:
                if self._value is None:
                    raise
                log.error("%s; the previous content stays in use", error.message)  # noqa: TRY400 - its text says all
        return self._value


def _version(file: str) -> tuple[int, ...]:
    try:
        found = Path(file).stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


_LINE = re.compile(
    r"(?:(?P<role>viewer|operator|admin):(?:(?!sha256:)(?P<name>[A-Za-z0-9._@-]{1,64}):)?)?"
    r"(?:sha256:(?P<hash>[0-9a-f]{64})|(?P<token>[A-Za-z0-9._~+/-]{16,512}=*))"
)


def escaped(name: str) -> str:
    """Return a name that somebody else has chosen as it may stand in a line of the log."""
    return ascii(name)[1:-1]


class Asker(NamedTuple):
    """The name and role of a client. The log has the name."""

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
        why = getattr(error, "strerror", None) or "it is not text"
        raise _wrong(path, f"cannot be read: {why}") from None
    found = tuple(_token(path, number, line) for number, line in enumerate(lines, 1) if line)
    if not found:
        raise _wrong(path, "holds no token")
    if len({each.digest for each in found}) < len(found):
        raise _wrong(path, "has a token in two lines, so its role is ambiguous")
    return found


def _token(path: Path, number: int, line: str) -> Token:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise _wrong(
            path,
            f"line {number} is not a token of 16 to 512 letters, digits or -._~+/, nor sha256:HASH, nor one of them"
            " after ROLE: or ROLE:NAME: with the role viewer, operator or admin",
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


Contexts = Callable[[], ssl.SSLContext]


class TlsFiles(NamedTuple):
    """The files that the settings of HTTP name; empty: none."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    ca: str = ""

    @classmethod
    def of(cls, settings: HttpSettings) -> TlsFiles:
        named = (settings.tls_certificate_file, settings.tls_key_file, settings.client_ca_file, settings.tls_ca_file)
        # Not resolved: Kubernetes renews the files of a secret by another target of a link, and removes the former one.
        return cls(*(each and str(Path(each).absolute()) for each in named))

    def server(self) -> Contexts:
        """Make the contexts of those who ask this process; it must have a certificate.

        Raises:
            UsageError: the files are of no use.
        """
        contexts = Renewed((self.certificate, self.key, self.client_ca), self._server)
        contexts.now()
        return contexts.now

    def client(self) -> Contexts:
        """Make the contexts of requests to other processes, which are shown our certificate if they ask for one."""
        return Renewed((self.certificate, self.key, self.ca), self._client).now

    def check(self) -> None:
        """Read all files, or raise UsageError: one of them is of no use."""
        if self.certificate:
            self._server()
        if self.ca:
            self._client()

    def _server(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._show(context)
        if self.client_ca:
            _trust(context, "client_ca_file", self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # probes have none; `Guard` refuses all else without one
        return context

    def _client(self) -> ssl.SSLContext:
        context = ssl.create_default_context() if not self.ca else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca:
            _trust(context, "tls_ca_file", self.ca)
        if self.certificate:
            self._show(context)
        return context

    def _show(self, context: ssl.SSLContext) -> None:
        try:
            for each in (self.certificate, self.key):
                _check_readable("tls_key_file" if each == self.key else "tls_certificate_file", each)
            # Without a password openssl would ask for one at the terminal.
            context.load_cert_chain(self.certificate, self.key or None, password=lambda: "")
        except ssl.SSLError as error:
            name = f"http.tls_certificate_file={self.certificate}, http.tls_key_file={self.key or self.certificate}"
            raise _wrong_file(name, f"not a PEM certificate with an unencrypted key: {error.reason or error}") from None


def _trust(context: ssl.SSLContext, setting: str, file: str) -> None:
    _check_readable(setting, file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise _wrong_file(f"http.{setting}={file}", f"not PEM certificates: {error.reason or error}") from None


def _check_readable(setting: str, file: str) -> None:
    if file:
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            raise _wrong_file(f"http.{setting}={file}", f"cannot be read: {error.strerror}") from None


def _wrong_file(name: str, why: str) -> UsageError:
    return UsageError(f"{name}: {why}", hint="name PEM files that this process may read (docs/http.md has an example)")


def subject(certificate: Mapping[str, Any] | None) -> str:
    """Name whom a verified certificate is of, by its common name; empty: there is none."""
    if not certificate:
        return ""
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(names.get("commonName") or names or "a certificate without a subject")
