"""The answers of Kafka that are not what it was asked for. Pure; no exception of the client passes the ports."""

from __future__ import annotations

from snapreplay.errors import AccessError, RecordsGone, ReleaseError, RetryableError, StopError


class Unreachable(RetryableError):
    """No broker answered within the deadline, or the connection broke. A new client may help."""


class NotAuthenticated(AccessError):
    """Brokers answer and refuse access: password, SASL mechanism, certificate, protocol. `facts`: address."""


class NotAuthorized(AccessError):
    """An ACL is missing. `facts`: operation, resource ("topic payments"), principal; each as far as known."""


class ClockRefused(RetryableError):
    """A broker refuses this machine's time.

    Safe: Nothing was committed with the wrong time. The partition waits, loses nothing, and resumes by itself once the
    clock is right, or the topic's limits are lifted: a restart is not needed.
    """


class ReadStalled(RetryableError):
    """A reader's position has not moved for the progress timeout although there is more to read.

    Safe: The partition reads again by itself, with a new client, and nothing is lost. Do not restart its process: the
    recovery would begin again.
    """


class OffsetTrimmed(RecordsGone):
    """The offset lies below the log's start. `facts`: offset, start_offset, end_offset.

    RETRY only by class: recovery decides what a trimmed offset means where it occurs.
    """


class OffsetBeyondEnd(RecordsGone):
    """The offset lies above the log's end: a stale leader, or the log is shorter than it was."""


class TopicGone(RecordsGone):
    """The topic does not exist, or its id is not the requested one. `facts`: topic, topic_id."""


class CommitInDoubt(RetryableError):
    """A transaction did not end with a clean OK. The producer is dead; only the log knows what happened."""


class Fenced(ReleaseError):
    """The broker refused our producer epoch: a newer owner, or our transaction timed out (not told apart)."""


class RefusedRecord(RetryableError):
    """The broker refused a record for good (size, timestamp, policy): the same batch would fail again.

    Safe: The transaction is not committed: readers with `read_committed` get nothing of it. A partition tries the batch
    again by itself, in smaller and smaller parts, until only the record to blame is left.

    `facts`: topic, error.
    """


class RefusedTopic(RefusedRecord):
    """The broker refused the topic, not what was sent to it: it does not exist, or its name is not valid.

    Safe: The transaction is not committed: readers with `read_committed` get nothing of it. A partition tries the batch
    again by itself, and stops with RefusedAgain after the third time.
    """


class GroupInUse(StopError):
    """A consumer group cannot be deleted, because it has members."""


class GroupRefused(RetryableError):
    """The coordinator does not let this process join the app's group: a setting of the brokers, or another program in
    the group.

    Safe: Running partitions continue until the group assigns them to another process. The process tries again by
    itself, at least every ten seconds, and needs no restart once the cause is gone.
    """
