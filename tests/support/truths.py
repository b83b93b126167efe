"""Asks the processes of an app who owns its partitions, and compares what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import httpx2

ASKABLE = ("self", "reachable")


class Owner(NamedTuple):
    """The owner of a partition, as somebody says; without a process: nobody who can be asked has it."""

    process_id: str | None
    owner_epoch: int | None
    phase: str | None


NOBODY = Owner(None, None, None)
Truth = Mapping[int, Owner]


def truth(url: str) -> Truth | None:
    """The owner of each partition, as is said at this address; None: nobody answers there."""
    rows = _rows(url, "/restore-status", "partitions")
    return None if rows is None else {row["partition"]: _owner(row) for row in rows}


def agreed(urls: Iterable[str]) -> Truth | None:
    """The owner of each partition, as is said at all these addresses; None: they differ, or one is silent."""
    first, *others = [truth(url) for url in urls]
    return first if all(each == first for each in others) else None


def addresses(url: str) -> dict[str, str]:
    """The address of each process that can be asked, by its id, as is said at this address."""
    rows = _rows(url, "/api/v1/processes", "items") or ()
    return {row["process_id"]: row["url"] for row in rows if row["state"] in ASKABLE and row["url"]}


def all_live(url: str, processes: int, partitions: int) -> tuple[dict[str, str], Truth] | None:
    """The addresses of so many processes and the owner of each of so many partitions, as all of them and this address
    say; None: they differ, or not all are live."""
    urls = addresses(url)
    told = agreed([url, *urls.values()]) if len(urls) == processes else None
    is_whole = told is not None and len(told) == partitions and all(each.phase == "live" for each in told.values())
    return (urls, told) if told is not None and is_whole else None


def _owner(row: Mapping[str, Any]) -> Owner:
    if row["process_state"] not in ASKABLE:
        return NOBODY
    return Owner(row["process_id"], row["owner_epoch"], row["phase"])


def _rows(url: str, path: str, member: str) -> list[dict[str, Any]] | None:
    with suppress(httpx2.HTTPError, ValueError, KeyError):
        found: list[dict[str, Any]] = httpx2.get(url + path, trust_env=False, timeout=5).json()[member]
        return found
    return None
