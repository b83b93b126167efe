"""Questions about a cluster that the service seldom asks, and `doctor` always: its brokers one by one, replicas, open
transactions, permissions.

Reads, except for `probe`, whose transaction holds no record and is aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from aiokafka.client import CoordinationType
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    LeaderNotAvailableError,
    NoError,
    TransactionalIdAuthorizationFailed,
    for_code,
)
from aiokafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest, DescribeConfigsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from msgspec.structs import replace

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import Broker, EndingTransaction, OpenTransaction, Replicas
from snapreplay.service.core.lineage import ENDING
from snapreplay.service.kafka.connection import AnyRequest
from snapreplay.service.kafka.errors import Asked, translated
from snapreplay.service.kafka.fetches import Fetch, Limits
from snapreplay.service.kafka.refusals import NotConnected
from snapreplay.service.kafka.requests import (
    COORDINATOR_AWAY,
    DescribeGroups,
    DescribeProducers,
    DescribeTransactions,
    LeaveGroup,
    ListTransactions,
    Metadata,
    error_codes,
)
from snapreplay.service.kafka.shared import COORDINATOR_PAUSE_S, Client, Shared
from snapreplay.service.ports import TopicPartition

_NEEDED: tuple[AnyRequest, ...] = (
    ProduceRequest("", -1, 0, []),
    Fetch(Limits(read_committed=True, wait_ms=0, partition_bytes=0, max_bytes=0), [], {}),
    OffsetRequest(-1, 1, []),
    MetadataRequest([]),
    FindCoordinatorRequest("", CoordinationType.TRANSACTION),
    JoinGroupRequest("", 0, 0, "", "instance", "", []),
    HeartbeatRequest("", -1, ""),
    SyncGroupRequest("", -1, "", "instance", []),
    CreateTopicsRequest([], 0, validate_only=False),
    DeleteRecordsRequest([], 0),
    InitProducerIdRequest("", 0),
    AddPartitionsToTxnRequest("", -1, 0, []),
    EndTxnRequest("", -1, 0, False),
    DescribeConfigsRequest([]),
    Metadata([]),
    LeaveGroup("", "", None),
    DescribeGroups(""),
    DescribeProducers("", 0),
    DescribeTransactions(""),
    ListTransactions([]),
)
"""What the client asks of brokers. Every broker since Kafka 3.0 speaks a version of each that the client speaks."""

_NOBODY = -1  # no producer has this id
_FORBIDDEN = {GroupAuthorizationFailedError.errno, TransactionalIdAuthorizationFailed.errno}
_UNKNOWN_ID = 105  # TRANSACTIONAL_ID_NOT_FOUND
_ABORT = 0
_AGAIN = COORDINATOR_AWAY | {51}  # or it ends the last transaction of this id


class KafkaDiagnostics:
    """A client for questions: `async with KafkaDiagnostics(settings) as ask:`. Every question raises Unreachable,
    or NotAuthenticated or NotAuthorized, within three request timeouts."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._deadline_s = 3 * settings.request_timeout_ms / 1000
        self._client = Client(Shared(settings))

    async def __aenter__(self) -> Self:
        async with self._asking("connecting"):
            await self._client.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def brokers(self) -> list[Broker]:
        """Return all brokers that the cluster advertises, each connected to."""
        async with self._asking("listing brokers"):
            _, answer = await self._client.ask_any(MetadataRequest([]))
        return [await self.broker(node, f"{host}:{port}") for node, host, port, _ in answer.brokers]

    async def replicas(self, topics: Collection[str]) -> dict[TopicPartition, Replicas]:
        """Return the replicas of those topics that exist."""
        async with self._asking("describing topics"):
            _, answer = await self._client.ask_any(MetadataRequest(None))
        return {
            TopicPartition(entry["topic"], each["partition"]): Replicas(
                each["leader"], tuple(each["replicas"]), tuple(each["isr"])
            )
            for entry in answer.to_object()["topics"]
            if entry["topic"] in topics
            for each in entry["partitions"]
        }

    async def open_transaction(
        self, partition: TopicPartition, leader: int, brokers: Sequence[int]
    ) -> OpenTransaction | None:
        """Return the open transaction that began first, None: none. `brokers`: those of which one coordinates it."""
        async with self._asking(f"describing the producers of {partition}"):
            answer = await self._client.send(leader, DescribeProducers(*partition))
            ((_, ((_, code, message, producers, _),), _),) = answer.topics
            if code:
                raise for_code(code)(f"no description of the producers of {partition}: {message}")
            opened = [each for each in producers if each[5] >= 0]
            if not opened:
                return None
            producer_id, epoch, _, last_at_ms, _, start_offset, _ = min(opened, key=lambda each: each[5])
            found = OpenTransaction(producer_id, epoch, start_offset, last_record_at_ms=last_at_ms)
            for node in brokers:
                answer = await self._client.send(node, ListTransactions([producer_id]))
                for transactional_id, _, _, _ in answer.transaction_states:
                    return await self._described(found, node, transactional_id)
            return found

    async def holding(self, partition: TopicPartition) -> OpenTransaction | None:
        """Return what `open_transaction` does, of the leader and the brokers that any broker names."""
        async with self._asking(f"asking who leads {partition}"):
            told = await self._client.send(await self._client.anybody(), Metadata([partition.topic]))
            leaders = {each.partition: each.leader for topic in told.topics for each in topic[4]}
            if leaders.get(partition.partition, _NOBODY) == _NOBODY:
                raise LeaderNotAvailableError(str(partition))
        return await self.open_transaction(partition, leaders[partition.partition], [each[0] for each in told.brokers])

    async def ending(self, transactional_ids: Collection[str]) -> dict[str, EndingTransaction]:
        """Return those of the ids whose coordinator is ending a transaction now."""
        async with self._asking("asking for the ends of transactions"):
            found = {}
            for each in transactional_ids:
                asked = DescribeTransactions(each)
                code, answer = await self._ask_coordinator(CoordinationType.TRANSACTION, each, asked)
                if code in _FORBIDDEN or code == _UNKNOWN_ID:
                    continue  # `refused` says what is forbidden
                if code:
                    raise for_code(code)(f"no description of the transaction of {each}")
                ((_, _, state, _, started_at_ms, _, epoch, *_),) = answer.transaction_states
                if state in ENDING:
                    found[each] = EndingTransaction(state, epoch, started_at_ms)
            return found

    async def probe(self, transactional_id: str, partitions: Sequence[TopicPartition]) -> dict[str, str]:
        """Ask whether we may write there, with a transaction on these partitions, without a record, aborted at once.
        Return what is refused (the id, a topic, "idempotent writes") → the broker's reason.

        `transactional_id` is fenced: it must be nobody's.
        """
        async with self._asking("probing"):
            refused: dict[str, str] = {}
            while True:  # a broker that has just started has no ids yet
                _, answer = await self._client.ask_any(InitProducerIdRequest(None, 0))
                if answer.error_code not in COORDINATOR_AWAY:
                    break
                await asyncio.sleep(COORDINATOR_PAUSE_S)
            _note(refused, "idempotent writes", answer.error_code)

            async def asked(request: AnyRequest) -> tuple[int, Any]:
                return await self._ask_coordinator(CoordinationType.TRANSACTION, transactional_id, request)

            timeout_ms = self._settings.timeouts.transaction_ms
            code, answer = await asked(InitProducerIdRequest(transactional_id, timeout_ms))
            if _note(refused, transactional_id, code):
                return refused
            us = (transactional_id, answer.producer_id, answer.producer_epoch)
            began = False
            try:
                for topic, number in partitions:
                    code, _ = await asked(AddPartitionsToTxnRequest(*us, [(topic, [number])]))
                    began |= not _note(refused, topic, code)
            finally:
                if began:
                    code, _ = await asked(EndTxnRequest(*us, _ABORT))
                    _note(refused, transactional_id, code)
            return refused

    async def refused(self, group_id: str, owners: Mapping[str, TopicPartition]) -> dict[str, str]:
        """Return the group and transactional ids of `owners` that may not be used → the broker's reason.

        Asks as a member and a producer that never existed (an owner writes to its partition): the broker checks the
        permission first, and the refusal after it changes nothing and fences nobody.
        """
        async with self._asking("asking for the permissions of its group and transactional ids"):
            refused: dict[str, str] = {}
            beat = HeartbeatRequest(group_id, -1, "")
            code, _ = await self._ask_coordinator(CoordinationType.GROUP, group_id, beat)
            _note(refused, group_id, code if code in _FORBIDDEN else NoError.errno)
            for owner, (topic, number) in owners.items():
                add = AddPartitionsToTxnRequest(owner, _NOBODY, 0, [(topic, [number])])
                code, _ = await self._ask_coordinator(CoordinationType.TRANSACTION, owner, add)
                _note(refused, owner, code if code in _FORBIDDEN else NoError.errno)
            return refused

    def _asking(self, doing: str) -> AbstractAsyncContextManager[None]:
        return translated(doing, Asked(self._settings, "Describe"), within_s=self._deadline_s)

    async def broker(self, node: int, address: str) -> Broker:
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                return Broker(node, address, missing=missing_requests(await self._client.versions(node)))
        except (NotConnected, TimeoutError):
            return Broker(node, address, reachable=False)

    async def _described(self, found: OpenTransaction, node: int, transactional_id: str) -> OpenTransaction:
        answer = await self._client.send(node, DescribeTransactions(transactional_id))
        ((code, _, _, timeout_ms, started_at_ms, *_),) = answer.transaction_states
        if code:
            return replace(found, transactional_id=transactional_id)
        return replace(found, transactional_id=transactional_id, started_at_ms=started_at_ms, timeout_ms=timeout_ms)

    async def _ask_coordinator(self, kind: int, name: str, request: AnyRequest) -> tuple[int, Any]:
        """Ask the coordinator of a group or transactional id. Return its error code and its answer; without the
        permission to look for it, that code and None."""
        try:
            answer = await self._client.ask_coordinator(name, request, kind, again=_AGAIN)
        except (GroupAuthorizationFailedError, TransactionalIdAuthorizationFailed) as error:
            return error.errno, None
        return next(iter(error_codes(answer)), NoError.errno), answer


def missing_requests(versions: dict[int, tuple[int, int]]) -> tuple[str, ...]:
    """Return the requests that a broker does not speak. `versions`: API key → its oldest and newest version."""
    missing = []
    for request in _NEEDED:
        try:
            request.prepare(versions)
        except (IncompatibleBrokerVersion, NotImplementedError):
            missing.append(type(request).__name__.removesuffix("Request"))
    return tuple(missing)


def _note(refused: dict[str, str], what: str, code: int) -> bool:
    if code:
        refused[what] = for_code(code).__name__
    return bool(code)
