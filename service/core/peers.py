"""The other processes of the group, as each of them advertises itself when it joins; and whether they run the same
program. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from snapreplay.app.app import App


class Peer(msgspec.Struct, frozen=True):
    """Another process of the group, as of the last assignment."""

    process_id: str
    instance_id: str
    host: str
    url: Annotated[str, msgspec.Meta(description="Where its HTTP API answers; empty: it advertises no address.")]
    owned: Annotated[
        tuple[int, ...],
        msgspec.Meta(
            description="The partitions that the group gave to it, sorted; in a very large group only those that this"
            " process has copies of."
        ),
    ] = ()
    is_leaving: Annotated[
        bool, msgspec.Meta(description="Whether it gives its partitions away: it is drained, or about to stop.")
    ] = False
    declares: Annotated[
        str,
        msgspec.Meta(description="Of its program: four digits each of its outputs, handlers and modules; or empty."),
    ] = ""


def declared(app: App[Any]) -> str:
    """Return what a program says of itself: a hash each of its outputs, its handlers and timers, and their modules."""
    functions = [*app.handlers.values(), *(timer.function for timer in app.timers.values())]
    parts = (
        [topic.name for topic in app.outputs],
        [*(getattr(each, "__qualname__", "") for each in app.handlers.values()), *app.timers],
        [getattr(each, "__module__", "") for each in functions],
    )
    return "-".join(hashlib.sha256(repr(sorted(set(each))).encode()).hexdigest()[:4] for each in parts)


def other_programs(app_id: str, declares: str, peers: Iterable[Peer]) -> dict[str, str]:
    """Map the id of each process that runs another program to a sentence about it. A new version has other outputs,
    other handlers or another module; another program differs in at least two of these."""
    found = dict[str, str]()
    ours = declares.split("-")
    for peer in peers:
        theirs = peer.declares.split("-")
        both = zip(("outputs", "handlers", "modules"), ours, theirs, strict=True) if len(ours) == len(theirs) else ()
        other = [what for what, mine, its in both if mine != its]
        if len(other) >= 2:
            found[peer.process_id] = (
                f"process {peer.process_id} on {peer.host} runs another program under app id {app_id!r}: it has other"
                f" {' and '.join(other)} than this one. Each processes some of the partitions, with the state of the"
                ' other (stop one of the two, and give it an app id of its own: `App("NEW-ID", …)`; in a rolling'
                " upgrade this ends with the last old process)"
            )
    return found
