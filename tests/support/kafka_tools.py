"""Kafka's own command-line tools. A broker comes without most of them: one small jar more, fetched once by Maven."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from snapreplay.devbroker.jars import copy_dependencies, ensure, fill, kafka_version
from tests.support.deadlines import scaled

DEADLINE_SECONDS = scaled(60.0)
CLASSES = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
# What the tools need is in the broker's class path.
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>snapreplay</groupId>
  <artifactId>kafka-tools</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
  </dependencies>
</project>
"""


def run(words: Sequence[str], stdin: str = "") -> str:
    """A command as it is typed, "kafka-topics.sh --list …"; what it printed."""
    kafka = ensure()
    tools = kafka.root.with_name("kafka-tools")
    fill(tools, _pom(), _fetch)
    class_path = f"{kafka.class_path}:{tools / 'lib' / '*'}"
    name, *arguments = words
    done = subprocess.run(
        [str(kafka.java), "-XX:TieredStopAtLevel=1", "-cp", class_path, CLASSES[name], *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def _fetch(fresh: Path) -> None:
    copy_dependencies(_pom(), fresh / "lib")


def _pom() -> bytes:
    return POM.format(version=kafka_version()).encode()
