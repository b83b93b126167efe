"""The seal of an increment or a manifest: an HMAC-SHA256 with a key that only the app and its jobs have. Pure.

It lies behind the body, in the envelope, and covers version, kind, compression, body, the partition and the id of the
key. The body names app, cluster, topic ids, batch, owner epoch and the increment before, and has the SHA-256 of each
changes record or chunk. So nothing that was sealed for one place counts in another one, where the chain is checked.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from zlib import crc32

from snapreplay.errors import StopError, UsageError
from snapreplay.snapshots.format.envelope import HEADER_BYTES, MAC_BYTES, MAGIC, SEALED, RecordKind, kind_of

_DOMAIN = b"snapreplay seal 1"
_KEY_ID = re.compile(r"[0-9A-Za-z._-]{1,32}")
_KEY_BYTES_MIN = 32
SEALED_KINDS = (RecordKind.INCREMENT, RecordKind.MANIFEST)
"""Changes and chunks are covered by theirs. Claims are not sealed: they hold no state."""


class SealRefused(StopError):
    """A record has no seal, or not one of a known key, or is not what was sealed.

    Safe: The refused record is not used. Do not relax `seal.policy` before you know who has written the record: a
    forged record would then be read.
    """


class SealPolicy(StrEnum):
    """The seals that an app with a key writes and accepts."""

    REQUIRED = "required"
    INTRODUCE = "introduce"
    WITHDRAW = "withdraw"


@dataclass(frozen=True)
class Seals:
    """The keys of one process; without any, nothing is sealed, and what is sealed is refused.

    Attributes:
        keys: id → secret, the one that writes first.
        source: where they come from, for messages.
    """

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    policy: SealPolicy = SealPolicy.REQUIRED
    source: str = ""

    @property
    def writes(self) -> bool:
        """Whether what is written is sealed."""
        return bool(self.keys) and self.policy is not SealPolicy.WITHDRAW

    @property
    def is_changing(self) -> bool:
        """Whether the seal is being switched on or off."""
        return bool(self.keys) and self.policy is not SealPolicy.REQUIRED

    def sha256(self, values: Iterable[bytes]) -> bytes:
        """Return what a sealed record says about the records that it covers; empty where nothing is sealed."""
        return sha256_of(values) if self.writes else b""

    def put_on(self, value: bytes, partition: int) -> bytes:
        """Return the record with its seal, or as it is where nothing is sealed."""
        if not self.writes:
            return value
        key_id, secret = next(iter(self.keys.items()))
        described, body = value[4:7] + bytes([SEALED]), value[HEADER_BYTES:]
        covered = b"".join((body, key_id.encode(), bytes([len(key_id)])))
        rest = covered + _mac(secret, partition, described, covered)
        return b"".join((MAGIC, described, crc32(rest, crc32(described)).to_bytes(4, "big"), rest))

    def check(self, value: bytes, partition: int, where: str) -> None:
        """Check the seal of `value`, which is whole; records of other kinds than `SEALED_KINDS` pass.

        Raises:
            SealRefused: it must not be used.
        """
        if kind_of(value) not in SEALED_KINDS:
            return
        if is_sealed(value):
            self._check_sealed(value, partition, where)
        elif self.keys and self.policy is SealPolicy.REQUIRED:
            raise _unsealed(where, f"seal.policy is required and {self.source} has a key")

    def check_order(self, value: bytes, where: str, *, follows_sealed: bool) -> None:
        """Check that nothing goes on without the seal once it was begun with.

        Raises:
            SealRefused: it does.
        """
        if self.writes and follows_sealed and not is_sealed(value):
            raise _unsealed(where, "the increment before it has one")

    def _check_sealed(self, value: bytes, partition: int, where: str) -> None:
        key_id = key_id_of(value)
        secret = self.keys.get(key_id)
        if not self.keys:
            raise SealRefused(
                f"{where} is sealed with key {key_id!r}, and this process has no key",
                hint="give it the key file: `--set seal.key_file=PATH`; to switch the seal off, add `--set"
                " seal.policy=withdraw` until nothing needs a sealed record any more",
            )
        if secret is None:
            raise SealRefused(
                f"{where} is sealed with key {key_id!r}, but {self.source} has only {', '.join(self.keys)}",
                hint=f"add the line of key {key_id!r} to {self.source} again, below the first one, until nothing"
                " needs a record that it has sealed",
            )
        described, covered = value[4:8], value[HEADER_BYTES:-MAC_BYTES]
        if not hmac.compare_digest(_mac(secret, partition, described, covered), value[-MAC_BYTES:]):
            raise SealRefused(
                f"{where}: the seal by key {key_id!r} is not that of this record in partition {partition}",
                hint=f"if {self.source} was made again, bring the secret of key {key_id!r} back. Otherwise the record"
                " was forged or copied: take the right to write to the topic away from all but the app and its jobs,"
                " and bring the topic back from a backup or mirror",
            )


OFF = Seals()


def keys_in(text: str, source: str) -> dict[str, bytes]:
    """Read the keys of a key file: a line each, id and secret in hexadecimal digits. The first one writes.

    Raises:
        UsageError: names the line. It never repeats a secret.
    """
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key_id, secret = words[0], _secret(words[1:])
        if not _KEY_ID.fullmatch(key_id) or key_id in keys or len(secret) < _KEY_BYTES_MIN:
            raise UsageError(
                f"line {number} of {source} is no key: it must be an id of 1 to 32 letters, digits, '.', '_' and '-',"
                f" not used before, and at least {2 * _KEY_BYTES_MIN} hexadecimal digits",
                hint=_MAKE,
            )
        keys[key_id] = secret
    if not keys:
        raise UsageError(f"{source} has no key", hint=_MAKE)
    return keys


_MAKE = 'make one: `echo "$(date +%Y-%m) $(openssl rand -hex 32)"`'


def _unsealed(where: str, because: str) -> SealRefused:
    return SealRefused(
        f"{where} has no seal, but {because}",
        hint="if the seal was switched on just now, stop all processes and start them with `--set"
        " seal.policy=introduce`. Otherwise somebody without the key has written to the topic: take the right to write"
        " to it away from all but the app and its jobs, and bring the topic back from a backup or mirror",
    )


def is_sealed(value: bytes) -> bool:
    """Say whether a record has a seal, right or wrong."""
    return len(value) > HEADER_BYTES and value[7] == SEALED


def key_id_of(value: bytes) -> str:
    """Return the id of the key of a sealed record."""
    end = len(value) - MAC_BYTES - 1
    return value[end - value[end] : end].decode(errors="replace")


def sha256_of(values: Iterable[bytes]) -> bytes:
    """Return the digest of the digests of all values, in order; of one value its own."""
    digests = [sha256(value).digest() for value in values]
    return digests[0] if len(digests) == 1 else sha256(b"".join(digests)).digest()


def _secret(words: list[str]) -> bytes:
    try:
        return bytes.fromhex(words[0]) if len(words) == 1 else b""
    except ValueError:
        return b""


def _mac(secret: bytes, partition: int, described: bytes, covered: bytes) -> bytes:
    message = b"".join((_DOMAIN, partition.to_bytes(4, "big"), described, covered))
    return hmac.digest(secret, message, "sha256")
