"""aiokafka's errors as ours: the class decides what is done, so each one matters."""

import inspect

import aiokafka.errors as kafka
import pytest

from snapreplay.errors import RetryableError, StopError
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
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, commit_error

EVERY_CLASS = [
    error
    for _, error in inspect.getmembers(kafka, inspect.isclass)
    if issubclass(error, Exception) and error is not kafka.BrokerResponseError  # abstract: no code
]


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (kafka.ProducerFenced(), Fenced),
        (kafka.InvalidProducerEpoch(), Fenced),
        (kafka.MessageSizeTooLargeError(), RefusedRecord),
        (kafka.InvalidTimestampError(), RefusedRecord),
        (kafka.PolicyViolationError(), RefusedRecord),
        (kafka.for_code(87)(), RefusedRecord),  # INVALID_RECORD
        (kafka.UnknownTopicOrPartitionError(), RefusedTopic),
        (kafka.InvalidTopicError(), RefusedTopic),
        (kafka.TopicAuthorizationFailedError("t"), NotAuthorized),
        (kafka.TransactionalIdAuthorizationFailed("id"), NotAuthorized),
        (kafka.OutOfOrderSequenceNumber(), CommitInDoubt),
        (kafka.InvalidTxnState(), CommitInDoubt),
        (kafka.InvalidProducerIdMapping(), CommitInDoubt),
        (kafka.UnknownError(), CommitInDoubt),
        (kafka.KafkaConnectionError(), CommitInDoubt),
        (kafka.IllegalOperation("no transaction"), CommitInDoubt),
        (AssertionError("Invalid state transition"), CommitInDoubt),
        (TimeoutError(), CommitInDoubt),
        (ConnectionResetError(), CommitInDoubt),
    ],
)
def test_inside_a_transaction(error, ours):
    """Fenced, refused and forbidden are known; everything else is doubt, never success."""
    assert isinstance(error, CLIENT_ERRORS)
    assert type(commit_error(error, "app-0", "topic")) is ours


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (kafka.KafkaConnectionError("no broker"), Unreachable),
        (kafka.KafkaTimeoutError(), Unreachable),
        (TimeoutError(), Unreachable),
        (AssertionError(), Unreachable),
        (kafka.InvalidTransactionTimeout(), StopError),
        (kafka.IncompatibleBrokerVersion(), StopError),
        (kafka.GroupAuthorizationFailedError("g"), NotAuthorized),
        (kafka.AuthenticationFailedError("bad password"), NotAuthenticated),
    ],
)
def test_outside_of_a_transaction(error, ours):
    """Worth another try, or an operator's business."""
    assert type(client_error(error, "asking")) is ours


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (74, "FencedLeaderEpoch"),
        (75, "UnknownLeaderEpoch"),
        (78, "OffsetNotAvailable"),
        (100, "UnknownTopicId"),
        (103, "InconsistentTopicId"),
    ],
)
def test_what_a_fetch_is_refused_for_is_named(code, name):
    error = kafka.for_code(code)("fetching t-0")
    assert (name in str(client_error(error, "reading t-0")), error.retriable) == (True, True)


@pytest.mark.parametrize("error", EVERY_CLASS)
def test_every_error_of_the_client_has_a_reaction(error):
    """Also those that a later version of aiokafka brings: retry is the least that is done."""
    ours = commit_error(error("detail"), "app-0")
    assert isinstance(ours, RetryableError | StopError | Fenced)


def test_an_error_of_ours_stays_what_it_is():
    """Mapping twice must not turn a refusal into a doubt."""
    refused = RefusedRecord("no")
    assert commit_error(refused, "app-0") is refused
    assert client_error(refused, "x") is refused


SASL = {"security.protocol": "SASL_SSL", "sasl.plain.username": "ada", "sasl.plain.password": "lovelace"}
TLS = {"security.protocol": "SSL", "ssl.certfile": "client.pem"}
TOPIC, GROUP = kafka.TopicAuthorizationFailedError, kafka.GroupAuthorizationFailedError
ID, CLUSTER = kafka.TransactionalIdAuthorizationFailed, kafka.ClusterAuthorizationFailedError


@pytest.mark.parametrize(
    ("error", "given", "who", "said", "option"),
    [
        (TOPIC("payments"), SASL, "User:ada", "Read topic payments", "Read --topic payments"),
        (TOPIC({"b", "a"}), {}, "User:ANONYMOUS", "Read topic a", "Read --topic a"),
        (TOPIC(), TLS, "this user", "Read topic named", "Read --topic named"),
        (GROUP("ledger"), SASL, "User:ada", "Read group ledger", "Read --group ledger"),
        (
            *(ID("my-ledger-12"), SASL, "User:ada", "Write transactional id my-ledger-12"),
            "Write --transactional-id my-ledger- --resource-pattern-type prefixed",
        ),
        (CLUSTER("cluster: no"), SASL, "User:ada", "Read the cluster", "Read --cluster"),
    ],
)
def test_what_is_not_allowed_is_named_with_the_command_that_allows_it(error, given, who, said, option):
    """Who, which operation, on what; the principal only where it is known."""
    settings = Settings(kafka={"bootstrap.servers": "kafka:9092", **given})
    found = client_error(error, "reading", Asked(settings, "Read", "named"))
    assert isinstance(found, NotAuthorized)
    assert f"{who} may not {said}, while reading" in found.message
    principal = "User:NAME" if given is TLS else who
    assert found.hint == (
        f"kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal {principal} --operation {option}"
    )
