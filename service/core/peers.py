"""The other processes of the group, as each of them advertises itself when it joins. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec


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
