"""Reads the keys of the seal."""

from __future__ import annotations

from pathlib import Path

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.snapshots.format.seal import OFF, SealPolicy, Seals, keys_in


def seals_of(settings: Settings) -> Seals:
    """Return the seals that these settings name.

    Raises:
        UsageError: the key file cannot be read, or holds something else.
    """
    name = settings.seal.key_file
    if not name:
        return OFF
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"seal.key_file={name} cannot be read: {error}",
            hint="name a file that this process may read, or leave seal.key_file out if the app has no seal",
        ) from error
    return Seals(keys_in(text, name), SealPolicy(settings.seal.policy), name)
