"""All our Kafka clients are made here: their connections are those of `connection.py`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError, RequestTimedOutError

from snapreplay.counted import some
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.connection import BareClient
from snapreplay.service.kafka.shutdown import close_client, finish_despite_cancel

if TYPE_CHECKING:
    from snapreplay.service.kafka.shared import Shared


CONTROLLER_PAUSES_S = (0.0, *[0.2] * 14)
"""Before each look for one."""


class _AdminClient(AIOKafkaAdminClient):
    async def _send_request(self, request: Any, node_id: int | None = None) -> Any:
        if node_id is None:
            return (await first_answer(self._client, request))[1]
        return await super()._send_request(request, node_id)

    async def _send_to_controller(self, request: Any) -> Any:
        """Send as the client does, which raises a bare AttributeError where no controller is known: for a moment no
        broker is one, when those that there are were too busy to say that they are alive.

        Raises:
            NodeNotReadyError: nobody that answers knows one: brokers are starting, or gone.
        """
        for pause_s in CONTROLLER_PAUSES_S:
            if self._client.cluster.controller is not None:
                break
            await asyncio.sleep(pause_s)
            await self._client.force_metadata_update()
        if self._client.cluster.controller is None:
            raise NodeNotReadyError("no controller is known")
        return await super()._send_to_controller(request)


_NO_ANSWER = (RequestTimedOutError, KafkaConnectionError, NodeNotReadyError)


async def first_answer(client: AIOKafkaClient, request: Any) -> tuple[int, Any]:
    """Ask one broker after the other; return the node id of the first that answers, and its answer. A broker may be
    connected and silent.

    Raises:
        NodeNotReadyError: none can be connected.
        RequestTimedOutError, KafkaConnectionError: those that can stay silent.
    """
    silent: dict[int, KafkaError] = {}
    while True:
        try:
            node = await anybody(client, silent)
        except NodeNotReadyError:
            if not silent:
                raise
            raise silent.popitem()[1] from None
        try:
            return node, await client.send(node, request)
        except _NO_ANSWER as error:
            silent[node] = error


async def anybody(client: AIOKafkaClient, but: Collection[int] = ()) -> int:
    """Return the node id of a broker that can be connected: for some time the cluster also lists brokers that are gone.

    Raises:
        NodeNotReadyError: none can, except for those in `but`.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers() if broker.nodeId not in but]
    for node in random.sample(nodes, len(nodes)):
        if await client.ready(node):
            return int(node)
    where = some(f"{each.host}:{each.port}" for each in client.cluster.brokers())
    raise NodeNotReadyError(f"no broker answers at the addresses that they advertise (advertised.listeners): {where}")


def consumer_client(arguments: dict[str, Any], shared: Shared | None = None) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(**arguments)
    _change(consumer._client, shared)
    return consumer


def admin_client(arguments: dict[str, Any], shared: Shared | None = None) -> AIOKafkaAdminClient:
    admin = _AdminClient(**arguments)
    _change(admin._client, shared)
    return admin


def _change(client: AIOKafkaClient, shared: Shared | None) -> None:
    """Change the client that consumers and the others make themselves."""
    if shared is None:
        client.__class__ = BareClient
    else:
        shared.adopt(client)


class KeptAdmin:
    """An admin client that connects at its first use, and again after `close`."""

    def __init__(self, settings: Settings, shared: Shared | None = None) -> None:
        self._settings = settings
        self._shared = shared
        self._deadline_s = 3 * settings.request_timeout_ms / 1000
        self._client: AIOKafkaAdminClient | None = None

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_client(client._client)

    async def _connected(self) -> AIOKafkaAdminClient:
        if self._client is None:
            self._client = admin_client(client_arguments(self._settings), self._shared)
            await finish_despite_cancel(self._client.start())
        return self._client
