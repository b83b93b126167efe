"""The faults in the topics, and of those who lead them."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition

from tests.chaos.processes import until
from tests.chaos.schedule import Fault
from tests.chaos.world import Hit, World, asked
from tests.support.reassign import reassign
from tests.support.three_brokers import SIZE

ANSWER_S = 30.0
FOREIGN_TRANSACTION_MS = 60_000


@contextmanager
def foreign_transaction(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Somebody else's transactional producer writes into T-ZengLiang and takes its time: everything committed behind
    it is invisible until it has decided, for commit or abort."""
    partition, commits = fault.pick % world.partitions, fault.pick // 256 % 2 == 0
    producer = Producer(
        {
            "bootstrap.servers": world.brokers.bootstrap_servers,
            "transactional.id": f"foreign-{fault.number}",
            "transaction.timeout.ms": FOREIGN_TRANSACTION_MS,
            "log_level": 0,
        }
    )
    _patiently(lambda: producer.init_transactions(ANSWER_S))
    producer.begin_transaction()
    producer.produce(world.increments, b"not yours", partition=partition)
    producer.flush(ANSWER_S)
    hit(f"open in {world.increments}-{partition}, to {'commit' if commits else 'abort'}")
    try:
        yield
    finally:
        end = producer.commit_transaction if commits else producer.abort_transaction
        try:
            _patiently(lambda: end(ANSWER_S))
        except KafkaException as error:  # then its timeout has ended it, or will
            hit(f"left to its timeout: {error.args[0].name()}")


@contextmanager
def move_leaders(world: World, fault: Fault, hit: Hit) -> Iterator[None]:
    """Another broker leads each partition of T-ZengLiang, and after the hold the next one."""
    _turn(world, hit)
    yield
    _turn(world, hit)


def apart(world: World, output: str) -> None:
    """Let no partition of T-ZengLiang have the leader of the same partition of an output: a batch whose records all go
    to one broker, in one request, cannot be torn apart."""

    def leaders(topic: str) -> list[int]:
        return [leader for leader, _ in asked(lambda: world.facts.replicas(topic))]

    for _ in range(SIZE):
        pairs = zip(leaders(world.increments), leaders(output), strict=True)
        if any(ours == theirs for ours, theirs in pairs):
            _turn(world, lambda text: world.timeline.note("run", text))


def _turn(world: World, hit: Hit) -> None:
    topic = world.increments
    replicas = asked(lambda: world.facts.preferred(topic))
    turned = {number: nodes[1:] + nodes[:1] for number, nodes in replicas.items()}
    asked(lambda: reassign(world.brokers.bootstrap_servers, topic, turned))
    until(lambda: asked(lambda: world.facts.preferred(topic)) == turned, ANSWER_S)
    partitions = [TopicPartition(topic, number) for number in turned]
    # Without a timeout: confluent-kafka 2.16.1 answers any keyword here with a SystemError.
    elect = world.facts.admin.elect_leaders
    answers = asked(lambda: elect(ElectionType.PREFERRED, partitions).result(ANSWER_S))
    moved = {one.partition: turned[one.partition][0] - 1 for one, error in answers.items() if not error}
    refused = sorted({error.name() for error in answers.values() if error})
    hit(f"{topic} led by broker {moved}{f', refused: {refused}' if refused else ''}")


def _patiently(action) -> None:
    """Ask again as long as the client says that it may be asked again."""
    while True:
        try:
            action()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
