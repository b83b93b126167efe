"""The last fence of a transactional id: its coordinator knows that without any of our topics."""

from __future__ import annotations

import asyncio

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.coordination import FindCoordinatorRequest

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.lineage import LastFence, Lineage
from snapreplay.service.kafka.clients import admin_client, anybody
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error
from snapreplay.service.kafka.requests import DescribeTransactions
from snapreplay.service.kafka.shutdown import close_client, finish_despite_cancel

_COORDINATOR_OF_TRANSACTIONS = 1
_NO_SUCH_ID = 105  # TRANSACTIONAL_ID_NOT_FOUND


async def last_fence(settings: Settings, transactional_id: str) -> LastFence | None:
    """Ask as `ports.Cluster.last_fence` says."""
    client = admin_client(client_arguments(settings))
    try:
        async with asyncio.timeout(3 * settings.request_timeout_ms / 1000):
            await finish_despite_cancel(client.start())
            return await _asked(client, transactional_id)
    except CLIENT_ERRORS as error:
        asked = Asked(settings, "Write", transactional_id)
        raise client_error(error, f"asking who has fenced {transactional_id}", asked) from error
    finally:
        await close_client(client._client)


async def _asked(client: AIOKafkaAdminClient, transactional_id: str) -> LastFence | None:
    anywhere = await anybody(client._client)
    find = FindCoordinatorRequest(transactional_id, _COORDINATOR_OF_TRANSACTIONS)
    found = await client._client.send(anywhere, find)
    if found.error_code:
        raise for_code(found.error_code)(transactional_id)
    answer = await client._client.send(found.coordinator_id, DescribeTransactions(transactional_id))
    ((code, _, state, _, _, producer_id, epoch, *_),) = answer.transaction_states
    if code == _NO_SUCH_ID:
        return None
    if code:
        raise for_code(code)(transactional_id)
    return LastFence(Lineage(int(producer_id), int(epoch)), str(state))
