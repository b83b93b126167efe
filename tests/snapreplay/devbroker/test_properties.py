"""The settings of the local broker."""

from pathlib import Path

import pytest

from snapreplay.devbroker.properties import Node, as_file, jvm_flags, server_properties

COPIES = "transaction.state.log.replication.factor"
IN_SYNC = "transaction.state.log.min.isr"


@pytest.mark.parametrize(("size", "copies", "in_sync"), [(1, "1", "1"), (3, "3", "2"), (4, "3", "2")])
def test_from_three_brokers_on_there_are_three_copies_of_which_two_must_be_in_sync(
    size: int, copies: str, in_sync: str
) -> None:
    """A cluster has the settings that people run; a fourth broker adds no copy."""
    nodes = [Node(n, 20000 + n, 30000 + n) for n in range(1, size + 1)]
    made = server_properties(nodes[-1], nodes, Path("/data"))
    assert (made[COPIES], made[IN_SYNC]) == (copies, in_sync)
    assert (made["default.replication.factor"], made["min.insync.replicas"]) == (copies, in_sync)
    assert made["controller.quorum.voters"].count("@") == size
    assert made["node.id"] == str(size)


def test_a_broker_may_live_elsewhere_and_be_reached_through_something() -> None:
    """It listens where it is told to; clients and controllers are sent to what stands in front of it."""
    there = Node(1, 9092, 9093, host="198.18.0.2")
    behind = Node(2, 20001, 20002, reached_at=(30001, 30002))
    made = server_properties(there, [there, behind], Path("/data"))
    assert made["listeners"] == "PLAINTEXT://198.18.0.2:9092,CONTROLLER://198.18.0.2:9093"
    assert made["advertised.listeners"] == "PLAINTEXT://198.18.0.2:9092"
    assert made["controller.quorum.voters"] == "1@198.18.0.2:9093,2@127.0.0.1:30002"
    made = server_properties(behind, [there, behind], Path("/data"))
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert made["advertised.listeners"] == f"PLAINTEXT://{behind.server}"
    assert behind.server == "127.0.0.1:30001"


def test_the_file_is_read_by_java_as_it_is_meant() -> None:
    """As Latin-1: umlauts, and what needs two units, are escaped; backslash, line break and leading space stay."""
    assert as_file({"a": "/Größe 東😀"}) == "a=/Gr\\u00f6\\u00dfe \\u6771\\ud83d\\ude00\n"
    assert as_file({"a": " b"}) == "a=\\ b\n"
    assert as_file({"b": "x\\y", "a": "1\n2"}) == "a=1\\n2\nb=x\\\\y\n"


def test_the_jvm_writes_into_its_work_directory_only(tmp_path: Path) -> None:
    """What a kill leaves behind lies where it is removed. Collector and compilers are chosen by one string of flags, as
    for Kafka's scripts, which takes the place of ours."""
    flags = jvm_flags(tmp_path, 256)
    assert {"-Xmx256m", f"-Djava.io.tmpdir={tmp_path}", f"-XX:ErrorFile={tmp_path}/jvm-crash.log"} < set(flags)
    assert "-XX:TieredStopAtLevel=1" in flags
    flags = jvm_flags(tmp_path, 256, "-server -XX:+UseG1GC")
    assert {"-server", "-XX:+UseG1GC"} < set(flags)
    assert not {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} & set(flags)
