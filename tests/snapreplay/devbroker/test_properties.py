"""The settings of the local broker."""

from pathlib import Path

from snapreplay.devbroker.properties import Node, as_file, jvm_flags, server_properties

ONE = [Node(1, 20001, 20002)]
THREE = [Node(1, 20001, 20002), Node(2, 20003, 20004), Node(3, 20005, 20006)]
FOUR = [*THREE, Node(4, 20007, 20008)]
COPIES = "transaction.state.log.replication.factor"
IN_SYNC = "transaction.state.log.min.isr"


def test_one_broker_has_one_copy_of_everything() -> None:
    """The internal topics can be made although there is nobody to replicate to."""
    made = server_properties(ONE[0], ONE, Path("/data"))
    assert made[COPIES] == made[IN_SYNC] == made["offsets.topic.replication.factor"] == "1"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:20002"


def test_three_brokers_have_three_copies_of_which_two_must_be_in_sync() -> None:
    """A cluster has the settings that people run; a fourth broker adds no copy."""
    for nodes in (THREE, FOUR):
        made = server_properties(nodes[1], nodes, Path("/data"))
        assert (made[COPIES], made[IN_SYNC]) == ("3", "2")
        assert (made["default.replication.factor"], made["min.insync.replicas"]) == ("3", "2")
        assert made["controller.quorum.voters"].count("@") == len(nodes)
        assert made["node.id"] == "2"


def test_it_listens_on_the_loopback_address_only() -> None:
    """Nobody else in the network can reach it."""
    made = server_properties(ONE[0], ONE, Path("/data"))
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001"


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
    assert (
        made["advertised.listeners"]
        == f"PLAINTEXT://{behind.server}"
        == "PLAINTEXT://127.0.0.1:30001"
    )


def test_what_the_caller_gives_wins() -> None:
    """Every property can be set, also one that we set."""
    extra = {"num.io.threads": "8", "auto.create.topics.enable": "true"}
    made = server_properties(ONE[0], ONE, Path("/data"), extra)
    assert extra.items() <= made.items()


def test_the_file_escapes_what_java_would_interpret() -> None:
    """A backslash or a line break in a value stays one."""
    assert as_file({"b": "x\\y", "a": "1\n2"}) == "a=1\\n2\nb=x\\\\y\n"


def test_the_file_is_ascii() -> None:
    """Java reads it as Latin-1: umlauts, and what needs two units, are escaped; a leading space stays."""
    assert (
        as_file({"log.dirs": "/Größe 東😀"})
        == "log.dirs=/Gr\\u00f6\\u00dfe \\u6771\\ud83d\\ude00\n"
    )
    assert as_file({"a": " b"}) == "a=\\ b\n"


def test_the_jvm_writes_into_its_work_directory_only(tmp_path: Path) -> None:
    """What a kill leaves behind lies where it is removed."""
    flags = jvm_flags(tmp_path, 256)
    assert "-Xmx256m" in flags
    assert f"-Djava.io.tmpdir={tmp_path}" in flags
    assert f"-XX:ErrorFile={tmp_path}/jvm-crash.log" in flags
