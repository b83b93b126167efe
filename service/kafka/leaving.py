"""LeaveGroup for a planned stop, which the client does not send for static members."""

from __future__ import annotations

import asyncio
import logging

from aiokafka import AIOKafkaConsumer
from aiokafka.client import ConnectionGroup

from snapreplay.errors import described
from snapreplay.service.kafka.errors import CLIENT_ERRORS
from snapreplay.service.kafka.requests import LeaveGroup
from snapreplay.service.kafka.shutdown import CLOSE_S, bounded

log = logging.getLogger(__name__)

_UNKNOWN_MEMBER_ID = 25  # aiokafka's own LeaveGroup of a dynamic member came first


async def leave_group(consumer: AIOKafkaConsumer, group_id: str, instance_id: str | None) -> None:
    """Leave the group as this consumer's member. Bounded, never raises."""
    coordinator = consumer._coordinator
    member_id, node = coordinator.member_id, coordinator.coordinator_id
    # First its tasks end, or the next heartbeat would join again.
    await bounded(coordinator.close(), CLOSE_S)
    if node is None or not member_id:
        return
    request = LeaveGroup(group_id, member_id, instance_id)
    try:
        async with asyncio.timeout(CLOSE_S):
            answer = await consumer._client.send(node, request, group=ConnectionGroup.COORDINATION)
    except CLIENT_ERRORS as error:
        log.warning("cannot send LeaveGroup for %s: %s", group_id, described(error))
        return
    codes = [answer.error_code, *(code for _, _, code, _ in answer.members)]
    expected = {0} if instance_id else {0, _UNKNOWN_MEMBER_ID}
    if not expected.issuperset(codes):
        log.warning("LeaveGroup of %s was answered with codes %s", group_id, codes)
