"""A standalone Spark cluster on loopback: a master and two workers, and a Python environment for its executors."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from snapreplay.devbroker.free_ports import free_ports, is_free
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent


class SparkCluster(NamedTuple):
    """A master and two workers, whose executors run below `folder`, each in a folder of its own."""

    master: str
    folder: Path

    def worked(self) -> int:
        """Return how many executors there have been."""
        return len(list(self.folder.glob("worker*/app-*/[0-9]*")))


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Provide a cluster for the length of the block; only the processes started here are ended."""
    folder.mkdir()
    port, *pages = free_ports(4)
    words = {"master": ["master.Master", "--port", str(port), "--webui-port", str(pages[0])]}
    for number in (1, 2):
        words[f"worker{number}"] = [
            "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker{number}"),
            "--webui-port", str(pages[number]), f"spark://127.0.0.1:{port}",
        ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, (main, *options) in words.items():
            started.append(_started(folder, name, [main, "--host", "127.0.0.1", *options]))
            if name == "master":
                eventually(lambda: not is_free(port), "a master", 60)
        log = folder / "master.log"
        eventually(lambda: log.read_text().count("Registering worker") == 2, "two workers", 60)
        yield SparkCluster(f"spark://127.0.0.1:{port}", folder)
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(30)


def _started(folder: Path, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    main = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(main, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)


def executors_python(folder: Path) -> Path:
    """An environment without this tree on its path: the package as in a wheel, and the libraries of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copytree(ROOT / "snapreplay", site / "snapreplay", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin/python"
