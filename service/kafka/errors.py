"""The errors of aiokafka, as errors of the ports. One table for sends and commits, one for everything else.

Facts (real broker 4.3.1): a fence and a transaction timeout both come as INVALID_PRODUCER_EPOCH on all
requests, so they are not told apart; INVALID_TXN_STATE comes from late or doubled requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import errors as kafka

from snapreplay.app.names import alter
from snapreplay.errors import AccessError, SnapreplayError, StopError, described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import (
    CommitInDoubt,
    Fenced,
    NotAuthenticated,
    NotAuthorized,
    RefusedRecord,
    RefusedTopic,
    Unreachable,
)
from snapreplay.service.kafka.refusals import NotConnected, refusal


def _learned(errno: int, name: str, *, retriable: bool = False, invalid_metadata: bool = False) -> Any:
    """Register an error that aiokafka 0.14.0 lacks. As an unknown error it would leave a batch in doubt and be retried
    for ever."""
    said = {"errno": errno, "message": name, "retriable": retriable, "invalid_metadata": invalid_metadata}
    made = type("".join(map(str.title, name.split("_"))), (kafka.BrokerResponseError,), said)
    kafka.kafka_errors[errno] = made
    return made


InvalidRecord = _learned(87, "INVALID_RECORD")
"""A record is refused for what it is, such as one without a key for a compacted topic (Kafka 2.5)."""
GroupFull = _learned(81, "GROUP_MAX_SIZE_REACHED")
"""The coordinator takes no more members than `group.max.size` (Kafka 2.2)."""
_learned(74, "FENCED_LEADER_EPOCH", retriable=True, invalid_metadata=True)
_learned(75, "UNKNOWN_LEADER_EPOCH", retriable=True)
_learned(78, "OFFSET_NOT_AVAILABLE", retriable=True)  # a new leader does not know yet where its log ends
_learned(100, "UNKNOWN_TOPIC_ID", retriable=True, invalid_metadata=True)
_learned(103, "INCONSISTENT_TOPIC_ID", retriable=True, invalid_metadata=True)

_NOT_SPOKEN = (kafka.IncompatibleBrokerVersion, NotImplementedError)
"""The broker does not know the request, or none of the versions that we know."""


CLIENT_ERRORS = (
    *(kafka.KafkaError, kafka.IllegalOperation, AssertionError, OSError, TimeoutError),
    NotImplementedError,
)
"""Everything that calls into aiokafka were seen to raise."""

_FENCED = (kafka.ProducerFenced, kafka.InvalidProducerEpoch)
_NO_LIMIT = 2**63 - 1
_REFUSED = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.InvalidTimestampError,
    kafka.PolicyViolationError,
    InvalidRecord,
)
_REFUSED_TOPIC = (kafka.InvalidTopicError, kafka.UnknownTopicOrPartitionError)
_FORBIDDEN = (
    kafka.TopicAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.ClusterAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
)
_KEPT_OUT = (
    kafka.AuthenticationFailedError,
    kafka.SaslAuthenticationFailed,
    kafka.AuthenticationMethodNotSupported,
    kafka.UnsupportedSaslMechanismError,
)


class Asked(NamedTuple):
    """The question that was asked, for the command that would allow it.

    Attributes:
        operation: on a topic or the cluster, in Kafka's words. Groups are read or deleted, transactional ids written.
        name: of the topic, group or transactional id, where the client's error does not say it.
    """

    settings: Settings
    operation: str
    name: str = ""


def commit_error(
    error: BaseException, transactional_id: str, topic: str = "", settings: Settings | None = None
) -> SnapreplayError:
    """Return what an error inside a transaction means; `topic` is the one of the failed send, where known."""
    if isinstance(error, SnapreplayError):
        return error
    if isinstance(error, _FENCED):
        return Fenced(
            f"the broker refuses the epoch of producer {transactional_id}: there is a newer owner, or our"
            " transaction timed out",
            transactional_id=transactional_id,
        )
    if isinstance(error, (*_REFUSED, *_REFUSED_TOPIC)):
        where = f"a record for topic {topic}" if topic else "a record"
        refused = RefusedTopic if isinstance(error, _REFUSED_TOPIC) else RefusedRecord
        return refused(
            f"the broker refuses {where}: {described(error)}",
            hint=_refused_hint(error, topic or "TOPIC"),
            topic=topic,
            error=described(error),
        )
    if isinstance(error, _FORBIDDEN):
        asked = Asked(settings, "Write", topic) if settings is not None else None
        return _forbidden(error, f"in a transaction of {transactional_id}", asked)
    return CommitInDoubt(
        f"the transaction of {transactional_id} did not end with OK: {described(error)}",
        transactional_id=transactional_id,
        error=described(error),
    )


def client_error(error: BaseException, doing: str, asked: Asked | None = None) -> SnapreplayError:
    """Return what an error outside of a transaction means; `doing` completes "while …"."""
    if isinstance(error, SnapreplayError):
        return error
    if isinstance(error, _FORBIDDEN):
        return _forbidden(error, f"while {doing}", asked)
    if isinstance(error, _KEPT_OUT):
        return NotAuthenticated(
            f"Kafka denied access while {doing}: {described(error)}",
            hint="correct kafka.sasl.* and kafka.security.protocol",
        )
    if isinstance(error, _NOT_SPOKEN):
        return StopError(
            f"a broker does not support the version of a request while {doing}: {described(error)}",
            hint="upgrade the brokers: snapreplay needs Kafka 3.0 or newer",
        )
    if isinstance(error, kafka.UnsupportedCodecError):
        return StopError(
            f"a compressed record cannot be decompressed here, while {doing}: {described(error)}",
            hint="install the cramjam package: it decompresses lz4 and snappy",
        )
    if isinstance(error, kafka.InvalidTransactionTimeout):
        return StopError(
            f"the broker refused the transaction timeout while {doing}",
            hint="lower timeouts.transaction_ms, or raise transaction.max.timeout.ms on the brokers",
        )
    if any(isinstance(each, kafka.GroupCoordinatorNotAvailableError) for each in _chain(error)):
        return Unreachable(
            f"no broker is the coordinator yet, while {doing}",
            hint="brokers that have just started need a moment. If it lasts, they cannot create their own topics:"
            " offsets.topic.replication.factor and transaction.state.log.replication.factor must not be above the"
            " number of brokers",
        )
    told = str(error) if isinstance(error, NotConnected) else described(error)
    if isinstance(error, TimeoutError):
        troubles = [each for each in _chain(error) if isinstance(each, kafka.KafkaError)]
        told += f"; before it: {described(troubles[0])}" if troubles else ""
    return Unreachable(f"no usable answer from Kafka while {doing}: {told}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes. A deadline's is a cancellation, whose cause is the trouble before it."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


async def known_error(error: BaseException, doing: str, asked: Asked) -> SnapreplayError:
    """Return the refusal by a broker that caused the error, else `client_error`. Connects to brokers: not for use in a
    transaction."""
    for each in _chain(error):
        refused = await refusal(each, asked.settings) if isinstance(each, NotConnected) else None
        if refused is not None:
            return refused
    return client_error(error, doing, asked)


@asynccontextmanager
async def translated(
    doing: str, asked: Asked, *, within_s: float | None = None, give_up: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[None]:
    """Raise `known_error` for what the client raises in this block, or if the block takes longer than `within_s`.
    `give_up` is awaited first, after any error and after a cancellation."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except BaseException as error:
        if give_up is not None:
            await give_up()
        if isinstance(error, CLIENT_ERRORS):
            raise await known_error(error, doing, asked) from error
        raise


def _refused_hint(error: BaseException, topic: str) -> str:
    if isinstance(error, kafka.InvalidTimestampError):
        return f"give the records a time within the topic's limits; or lift the limits: `{lifted_times(topic)}`"
    if isinstance(error, InvalidRecord):
        keyed = "a compacted topic accepts no record without a key: give each record a key"
        return f"{keyed}; or `{alter(topic, 'cleanup.policy=delete')}`"
    return f"`kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --topic {topic}` shows its limits"


def lifted_times(topic: str) -> str:
    """Return the command that lets a topic take records of any time."""
    limits = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    return alter(topic, ",".join(f"{limit}={_NO_LIMIT}" for limit in limits))


def _forbidden(error: BaseException, doing: str, asked: Asked | None) -> AccessError:
    kind, operation, option = _RESOURCES[type(error)]
    name = _name_in(error)
    if not name and asked is not None and option != "--cluster":
        name = asked.name
    if asked and (not operation or asked.operation == "Delete"):
        operation = asked.operation
    principal = principal_of(asked.settings) if asked else ""
    resource = f"{kind} {name}".strip()
    return NotAuthorized(
        f"{principal or 'this user'} may not {operation or 'use'} {resource}, {doing}: {type(error).__name__}",
        hint=_add_acl(asked, principal, operation or "OPERATION", option, name),
        operation=operation,
        resource=resource,
        principal=principal,
    )


# Name of the resource, its operation if there is only one, the option of kafka-acls.sh.
_RESOURCES: dict[type[BaseException], tuple[str, str, str]] = {
    kafka.TopicAuthorizationFailedError: ("topic", "", "--topic"),
    kafka.GroupAuthorizationFailedError: ("group", "Read", "--group"),
    kafka.TransactionalIdAuthorizationFailed: ("transactional id", "Write", "--transactional-id"),
    kafka.ClusterAuthorizationFailedError: ("the cluster", "", "--cluster"),
}


def _name_in(error: BaseException) -> str:
    """Return the one name in what the client names: a topic, a partition, a set of topics, a group, an id, or
    nothing."""
    named = error.args[0] if error.args else ""
    named = getattr(named, "topic", named)
    if isinstance(error, kafka.ClusterAuthorizationFailedError):
        return ""
    name = named if isinstance(named, str) else min(named, default="")
    return name.rpartition(" ")[2]  # "no coordinator of NAME"


def principal_of(settings: Settings) -> str:
    """Name us as the authorizer does, unless the brokers map names; "" for a certificate."""
    given = settings.kafka
    if str(given.get("security.protocol", "PLAINTEXT")).startswith("SASL"):
        user = given.get("sasl.plain.username")
        return f"User:{user}" if user else ""
    return "" if "ssl.certfile" in given else "User:ANONYMOUS"


def _add_acl(asked: Asked | None, principal: str, operation: str, option: str, name: str) -> str:
    servers = ",".join(asked.settings.bootstrap_servers) if asked else ""
    to_cluster = f"--bootstrap-server {servers} " if servers else ""
    which = name
    if option == "--transactional-id":  # one per partition: all of them
        which = f"{name.rpartition('-')[0]}- --resource-pattern-type prefixed"
    return (
        f"kafka-acls.sh {to_cluster}--add --allow-principal {principal or 'User:NAME'} --operation {operation}"
        f" {option} {which}".rstrip()
    )
