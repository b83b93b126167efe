"""The answers of Kafka that are not what it was asked for. Pure; no exception of the client passes the ports."""

from __future__ import annotations

from snapreplay.errors import AccessError, RecordsGone, ReleaseError, RetryableError, StopError


class Unreachable(RetryableError):
    """No broker answered within the deadline, or the connection broke. The next attempt uses a new client."""


class NotAuthenticated(AccessError):
    """The brokers refuse the login: wrong password, SASL mechanism, certificate or protocol."""

    # facts: address, of the broker


class NotAuthorized(AccessError):
    """An ACL is missing."""

    # facts: operation, resource ("topic payments"), principal; each as far as known


class ClockRefused(RetryableError):
    """A broker refuses records, because their timestamps by this machine's clock are out of its limits.

    Safe: Nothing was committed with the wrong time. The partition waits, loses nothing, and resumes without a restart
    once the clock is right or the topic's limits are removed.
    """


class ReadStalled(RetryableError):
    """A reader made no progress for `timeouts.progress_ms`, although there are more records.

    Safe: The partition reads again by itself, with a new client, and nothing is lost. Do not restart its process: the
    recovery would begin again.
    """


class OffsetTrimmed(RecordsGone):
    """The offset is below the start of the log: the record was deleted."""

    # facts: offset, start_offset, end_offset


class OffsetBeyondEnd(RecordsGone):
    """The offset is beyond the end of the log: the broker is a stale leader, or the log was truncated."""


class TopicGone(RecordsGone):
    """The topic does not exist, or was created again with another id."""

    # facts: topic, topic_id


class CommitInDoubt(RetryableError):
    """It is not known whether a transaction was committed. The partition looks for its increment in the log."""


class Fenced(ReleaseError):
    """The broker refused the producer: a newer owner has fenced it, or its transaction timed out. Kafka does not tell
    the two apart."""


class RefusedRecord(RetryableError):
    """The broker refuses a record (size, timestamp, policy), and would refuse it again.

    Safe: The transaction is not committed: readers with `read_committed` get nothing of it. A partition tries the batch
    again by itself, in smaller and smaller parts, until only this record is left.
    """

    # facts: topic, error


class RefusedTopic(RefusedRecord):
    """The broker refused the topic, because it does not exist or its name is not valid.

    Safe: The transaction is not committed: readers with `read_committed` get nothing of it. A partition tries the batch
    again by itself, and stops with RefusedAgain after the third time.
    """


class GroupInUse(StopError):
    """A consumer group cannot be deleted, because it has members."""


class GroupRefused(RetryableError):
    """The coordinator does not let this process join the app's group. The cause is a setting of the brokers, or another
    program in the group.

    Safe: Running partitions continue until the group assigns them to another process. The process tries again by
    itself, at least every ten seconds, and needs no restart once the cause is removed.
    """
