"""The settings of the Kafka clients.

Sizes and pauses are measured on a real broker: reads are fastest at 1 MiB per fetch for small records and
2 MiB for snapshot chunks (bigger answers block the loop while they are decoded); a fence behind an open
transaction costs one `retry_backoff_ms`.
"""

from __future__ import annotations

import logging
import ssl
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from snapreplay.errors import UsageError
from snapreplay.service.config.kafka_properties import PROPERTIES, TOKEN_PROVIDER
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.fetches import Limits
from snapreplay.service.kafka.tokens import tokens_of

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())  # a command without a log prints its error only

MIB = 1024 * 1024
FETCH_BYTES = MIB
LARGE_FETCH_BYTES = 2 * MIB
FETCH_WAIT_MS, HASTY_FETCH_WAIT_MS = 500, 10
_DEFAULTS: dict[str, object] = {"client.id": "snapreplay", "retry.backoff.ms": 20, "metadata.max.age.ms": 30_000}


class _Loaded(NamedTuple):
    written: tuple[int | None, ...]  # when each file was, in ns
    context: ssl.SSLContext
    told: str = ""  # why the files of today were not loaded


Properties = tuple[tuple[str, object], ...]
"""Those of TLS, sorted."""

_CONTEXTS: dict[Properties, _Loaded] = {}
_PROPERTIES: WeakKeyDictionary[ssl.SSLContext, Properties] = WeakKeyDictionary()


def client_arguments(settings: Settings) -> dict[str, Any]:
    """Return the arguments of connections, by aiokafka's names.

    Raises:
        UsageError: a PEM file or the token provider cannot be loaded.
    """
    arguments = _arguments(settings, "common")
    arguments["request_timeout_ms"] = settings.request_timeout_ms
    login = settings.kafka.get("security.protocol"), settings.kafka.get("sasl.mechanism", "PLAIN")
    if login == ("SASL_PLAINTEXT", "PLAIN"):
        _warn_of_clear_text()
    tokens = tokens_of(settings)
    if tokens is not None:
        arguments[TOKEN_PROVIDER.replace(".", "_")] = tokens
    if "SSL" in str(settings.kafka.get("security.protocol", "")):
        given = sorted((n, v) for n, v in settings.kafka.items() if n.startswith("ssl."))
        arguments["ssl_context"] = _ssl_context(tuple(given))
    return arguments


@cache
def _warn_of_clear_text() -> None:
    log.warning("the password is sent in clear text: set kafka.security.protocol=SASL_SSL, or use SCRAM-SHA-512")


def fetch_limits(settings: Settings, *, read_committed: bool, large: bool, patient: bool = False) -> Limits:
    """Return the limits of a reader's fetches. `large` is for records near 1 MiB (snapshot chunks), `patient` for
    following a log's end: a read elsewhere would wait for the answer to the last, futile fetch (0.4 s of a restart,
    measured with Kafka's default of 500 ms)."""
    given = _arguments(settings, "consumer")
    return Limits(
        read_committed,
        wait_ms=given.get("fetch_max_wait_ms", FETCH_WAIT_MS if patient else HASTY_FETCH_WAIT_MS),
        partition_bytes=given.get("max_partition_fetch_bytes", LARGE_FETCH_BYTES if large else FETCH_BYTES),
        min_bytes=given.get("fetch_min_bytes", 1),
        max_bytes=given.get("fetch_max_bytes", 50 * MIB),
        rack=given.get("client_rack", ""),
        checks_crcs=given.get("check_crcs", True),
    )


def retry_pause_s(settings: Settings) -> float:
    """Return the pause before a request is sent again."""
    return float(_arguments(settings, "common")["retry_backoff_ms"]) / 1000


def batch_bytes_max(settings: Settings) -> int:
    """Return the maximum bytes of a record batch; a topic's own limit may be lower."""
    return int(settings.kafka.get("max.batch.size", MIB))


def c_extension_loaded() -> bool:
    """Say whether aiokafka's record code is compiled; without it everything is 20 to 200 times slower."""
    return bool(DefaultRecordBatchBuilder.__module__.endswith("_crecords.default_records"))


def _arguments(settings: Settings, client: str) -> dict[str, Any]:
    values = _DEFAULTS | settings.kafka
    return {name.replace(".", "_"): value for name, value in values.items() if PROPERTIES[name].client == client}


def renewed(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of the same files as they are now: a client may live longer than its certificate."""
    return _ssl_context(_PROPERTIES[context])


def _ssl_context(properties: Properties) -> ssl.SSLContext:
    """Return the context, from PEM files that are read again when they were written again: certificates are renewed
    under a running service. If they cannot be loaded, for example because the key comes a moment later, the former
    ones stay in use."""
    known = _CONTEXTS.get(properties)
    written = tuple(_written_at(str(value)) for name, value in properties if name.endswith("file"))
    if known is not None and known.written == written:
        return known.context
    try:
        context = _load_context(properties)
    except UsageError as error:
        if known is None:
            raise
        if error.message != known.told:
            log.warning("the certificates that were loaded before stay in use: %s", error)
        _CONTEXTS[properties] = known._replace(told=error.message)
        return known.context
    _CONTEXTS[properties], _PROPERTIES[context] = _Loaded(written, context), properties
    return context


def _written_at(path: str) -> int | None:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return None


def _load_context(properties: Properties) -> ssl.SSLContext:
    given = dict(properties)
    try:
        context = ssl.create_default_context(cafile=_text(given.get("ssl.cafile")))
        certificate = _text(given.get("ssl.certfile"))
        if certificate is not None:
            # Never None: for an encrypted key OpenSSL would prompt at the terminal, and wait.
            password = str(given.get("ssl.password", ""))
            context.load_cert_chain(certificate, _text(given.get("ssl.keyfile")), password)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(f"kafka.{n}={v}" for n, v in properties if n.endswith("file"))
        raise UsageError(
            f"the PEM files of {named} cannot be loaded: {error}",
            hint="give readable PEM files, with certificate and key of one pair; an encrypted key needs"
            " kafka.ssl.password",
        ) from error
    context.check_hostname = bool(given.get("ssl.check.hostname", True))
    return context


def _text(value: object) -> str | None:
    return None if value is None else str(value)
