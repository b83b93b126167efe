"""What aiokafka raises, as errors of the ports. One table for sends and commits, one for everything else.

Facts (real broker 4.3.1): a fence and a transaction timeout both come as INVALID_PRODUCER_EPOCH on all
requests, so they are not told apart; a producer whose task has died raises AssertionError or
IllegalOperation; INVALID_TXN_STATE comes from late or doubled requests.
"""

from __future__ import annotations

from aiokafka import errors as kafka

from snapreplay.service.ports import (
    CommitInDoubt,
    Fenced,
    RefusedRecord,
    RefusedTopic,
    Unreachable,
)
from snapreplay.snapshots.errors import SnapreplayError, StopError


class InvalidRecord(kafka.BrokerResponseError):
    """The broker refuses a record for what it is, such as one without a key for a compacted topic (Kafka 2.5).

    aiokafka 0.14.0 does not know it: as an unknown error it would be doubt, and tried for ever.
    """

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker refuses the record for what it is."


kafka.kafka_errors[InvalidRecord.errno] = InvalidRecord

CLIENT_ERRORS = (kafka.KafkaError, kafka.IllegalOperation, AssertionError, OSError, TimeoutError)
"""All that a call into aiokafka is seen to raise."""

_FENCED = (kafka.ProducerFenced, kafka.InvalidProducerEpoch)
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
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.UnsupportedSaslMechanismError,
)


def commit_error(error: BaseException, transactional_id: str, topic: str = "") -> SnapreplayError:
    """What an error inside a transaction means; `topic` is the one of the failed send, where known."""
    if isinstance(error, SnapreplayError):
        return error
    if isinstance(error, _FENCED):
        return Fenced(
            f"the broker refuses the epoch of producer {transactional_id}: a newer owner, or our"
            " transaction timed out",
            transactional_id=transactional_id,
        )
    if isinstance(error, (*_REFUSED, *_REFUSED_TOPIC)):
        where = f"a record for topic {topic}" if topic else "a record"
        refused = RefusedTopic if isinstance(error, _REFUSED_TOPIC) else RefusedRecord
        return refused(
            f"the broker refuses {where}: {describe(error)}",
            hint=_refused_hint(error, topic or "TOPIC"),
            topic=topic,
            error=describe(error),
        )
    if isinstance(error, _FORBIDDEN):
        return _forbidden(error, f"transaction of {transactional_id}")
    return CommitInDoubt(
        f"the transaction of {transactional_id} ended without a clean OK: {describe(error)}",
        transactional_id=transactional_id,
        error=describe(error),
    )


def client_error(error: BaseException, doing: str) -> SnapreplayError:
    """What an error outside of a transaction means; `doing` completes "while …"."""
    if isinstance(error, SnapreplayError):
        return error
    if isinstance(error, _FORBIDDEN):
        return _forbidden(error, doing)
    if isinstance(error, kafka.UnsupportedCodecError):
        return StopError(
            f"a record is compressed in a way that cannot be read here, while {doing}: {describe(error)}",
            hint="is the cramjam package installed? It decompresses lz4, snappy and zstd",
        )
    if isinstance(error, kafka.InvalidTransactionTimeout):
        return StopError(
            f"the broker refuses our transaction timeout while {doing}",
            hint="lower timeouts.transaction_ms, or raise transaction.max.timeout.ms on the brokers",
        )
    return Unreachable(f"no good answer from Kafka while {doing}: {describe(error)}")


def describe(error: BaseException) -> str:
    """Class and text; the text alone is often empty."""
    text = str(error)
    name = type(error).__name__
    if isinstance(error, TimeoutError) and not text:
        return "deadline passed"
    return text if text.startswith(name) else f"{name}: {text}" if text else name


def _refused_hint(error: BaseException, topic: str) -> str:
    shown = f"kafka-configs.sh --describe --topic {topic} shows its"
    if isinstance(error, InvalidRecord):
        return f"{shown} cleanup.policy: a compacted topic takes no record without a key"
    return f"{shown} limits"


def _forbidden(error: BaseException, doing: str) -> StopError:
    return StopError(
        f"Kafka does not allow it ({doing}): {describe(error)}",
        hint="give this user the ACLs, or correct kafka.sasl.* and kafka.security.protocol",
    )
