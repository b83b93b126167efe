"""The settings of the local broker."""

from pathlib import Path

from snapreplay.devbroker.properties import Node, as_file, server_properties


def test_a_broker_may_live_elsewhere_and_be_reached_through_something() -> None:
    """It listens at the given address; clients and controllers are sent to what stands in front of it."""
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
