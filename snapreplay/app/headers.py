"""Headers as handlers and tests give them: pairs of a name and bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snapreplay.errors import SnapreplayError

_PAIRS = 'pass a list of pairs: `headers=[("trace", b"7")]`'


def checked_headers(
    where: str, given: object, refusal: type[SnapreplayError]
) -> tuple[tuple[str, bytes], ...]:
    """Return them as a tuple of pairs. `where`: what a message begins with.

    Raises:
        `refusal`: they are no pairs of str and bytes.
    """
    if isinstance(given, Mapping):
        raise refusal(
            f"{where}: headers={given!r} is of type {type(given).__name__}, but a name may occur twice in headers",
            hint=f"{_PAIRS}; of a dict, `headers=list(headers.items())`",
        )
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise refusal(f"{where}: headers={given!r} is no list of pairs", hint=_PAIRS)
    pairs = tuple(given)
    for each in pairs:
        if not isinstance(each, tuple | list) or list(map(type, each)) != [str, bytes]:
            raise refusal(
                f"{where}: header {each!r} is not a (str, bytes) pair",
                hint=f"{_PAIRS}; of a text, `text.encode()`",
            )
    return tuple((name, data) for name, data in pairs)
