"""Formatting a data directory, and the archive of classes."""

from pathlib import Path

import pytest

from snapreplay.devbroker.files import KafkaFiles, LocalBrokerUnavailable

META = "#\n#Sat Nov 21 01:39:41 UTC 2026\nnode.id=1\ndirectory.id=AAA\nversion=1\ncluster.id=BBB\n"


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaFiles:
    """Files as jars.py lays them out, with a java of its own."""
    root = tmp_path / "kafka"
    (root / "formatted").mkdir(parents=True)
    (root / "formatted" / "meta.properties").write_text(META)
    (root / "formatted" / "bootstrap.checkpoint").write_bytes(b"features")
    (root / "lib").mkdir()
    for name in ("b.jar", "a.jar", "notes.txt"):
        (root / "lib" / name).touch()
    java = tmp_path / "java"
    java.write_text("one")
    return KafkaFiles(java, root)


def meta(data_dir: Path) -> dict[str, str]:
    """The fields of a data directory's meta.properties."""
    lines = (data_dir / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_each_data_directory_gets_its_own_ids(kafka: KafkaFiles, tmp_path: Path) -> None:
    """Two brokers are two clusters, though both are copies of one formatted directory. One that is given a second time
    keeps its ids and its data."""
    kafka.format(tmp_path / "x", 1, "cluster-x")
    kafka.format(tmp_path / "y", 2, "cluster-y")
    x, y = meta(tmp_path / "x"), meta(tmp_path / "y")
    assert (x["cluster.id"], x["node.id"], x["version"]) == ("cluster-x", "1", "1")
    assert (y["cluster.id"], y["node.id"]) == ("cluster-y", "2")
    assert x["directory.id"] != y["directory.id"]
    assert (tmp_path / "x" / "bootstrap.checkpoint").read_bytes() == b"features"
    kafka.format(tmp_path / "x", 1, "second")
    assert meta(tmp_path / "x") == x


@pytest.mark.parametrize(
    ("name", "said"), [("a,b", "a,b: Kafka reads a comma"), ("a\udcff", r"a\\udcff: its name is not UTF-8")]
)
def test_a_name_that_would_be_read_otherwise_is_refused(
    kafka: KafkaFiles, tmp_path: Path, name: str, said: str
) -> None:
    """Kafka or Java would write elsewhere, without a word."""
    with pytest.raises(LocalBrokerUnavailable, match=said):
        kafka.format(tmp_path / name, 1, "CLUSTER")
    assert not (tmp_path / name).exists()


def test_an_archive_is_taken_over_whole_or_not_at_all(kafka: KafkaFiles, tmp_path: Path) -> None:
    """It appears under its name by a rename; a broker that wrote none is no error."""
    kafka.keep_class_archive(tmp_path / "none")
    assert not kafka.class_archive.exists()
    (tmp_path / "made").write_bytes(b"classes")
    kafka.keep_class_archive(tmp_path / "made")
    assert kafka.class_archive.read_bytes() == b"classes"
    assert not (tmp_path / "made").exists()
    assert len(list(kafka.root.glob("classes-*"))) == 1
    before = kafka.class_archive
    kafka.java.write_text("another")
    assert kafka.class_archive != before, "it holds for one Java only"
    lib = kafka.root / "lib"
    assert kafka.class_path == f"{lib}/a.jar:{lib}/b.jar", "and for one order"
