"""TLS of the API and of requests to other processes. Renewed certificates count from the next connection on."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from snapreplay.api.renewed import Renewed
from snapreplay.errors import UsageError

if TYPE_CHECKING:  # it is slow to import, and probes wait for this module
    from snapreplay.service.config.groups import HttpSettings

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
            raise _wrong(name, f"no certificate in PEM with its key, unencrypted: {error.reason or error}") from None


def _trust(context: ssl.SSLContext, setting: str, file: str) -> None:
    _check_readable(setting, file)
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise _wrong(f"http.{setting}={file}", f"no certificates in PEM: {error.reason or error}") from None


def _check_readable(setting: str, file: str) -> None:
    if file:
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            raise _wrong(f"http.{setting}={file}", f"cannot be read: {error.strerror}") from None


def _wrong(name: str, why: str) -> UsageError:
    return UsageError(f"{name}: {why}", hint="name PEM files that this process may read (docs/http.md has an example)")


def subject(certificate: Mapping[str, Any] | None) -> str:
    """Name whom a verified certificate is of, by its common name; empty: there is none."""
    if not certificate:
        return ""
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    return str(names.get("commonName") or names or "a certificate without a subject")
