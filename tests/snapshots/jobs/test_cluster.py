"""Audits and compactions on a standalone cluster of two workers: their environment and folder are not the driver's."""

import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from snapreplay.app.load import load_app
from tests.support.deadlines import scaled
from tests.support.spark_cluster import ROOT, SPARK_HOME, executors_python, spark_cluster
from tests.support.stage import Stage, snapshot

pytestmark = [pytest.mark.spark, pytest.mark.whole, pytest.mark.timeout(600)]

APP = """
import time

from snapreplay import App, MapState, Topic

payments, balances = Topic("{app_id}-payments"), Topic("{app_id}-balances")
app = App("{app_id}", inputs=[payments], outputs=[balances], state=lambda: MapState(str, int, default=int))


@app.handler(payments)
def on_payment(record, state, out):
    state[record.key] += record.value["amount"]
    out.send(balances, key=record.key, value=state[record.key])
"""
MAIN = ROOT / "snapreplay/api/cli/__main__.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with spark_cluster(tmp_path_factory.mktemp("spark") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return executors_python(tmp_path_factory.mktemp("executors") / "environment")


@pytest.fixture
async def told(broker, unique, tmp_path):
    """A log with two segments in each of two partitions. The driver's folder has the app's module."""
    app_id = unique("clustered")
    path = tmp_path / f"{app_id.replace('-', '_')}.py"
    path.write_text(APP.format(app_id=app_id))
    here = await Stage(broker.bootstrap_servers, load_app(str(path)), 2).prepare()
    async with here.running(records=200) as service:
        await snapshot(service)
        await here.process(service, 200)
    return here, path


def run(cluster, told, python, *submit):
    """Audit the log with spark-submit, at level replay."""
    here, path = told
    words = [f"{SPARK_HOME}/bin/spark-submit", "--master", cluster.master, *submit, str(MAIN), "audit"]
    words += [f"{path.stem}:app", "--level", "replay", "-o", "json", "--bootstrap-servers", here.bootstrap_servers]
    return subprocess.Popen(
        words,
        cwd=path.parent,
        env={
            **os.environ,
            "PYTHONPATH": f"{path.parent}:{ROOT}",
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """Exit code, result and errors. spark-submit prints the program's errors on standard output."""
    out, errors = process.communicate(timeout=scaled(300))
    code = process.returncode
    return code, json.loads(out) if code in {0, 1} else None, errors + out


def give(python, path):
    """The executors' environment has the app's module, too."""
    (site,) = python.parents[1].glob("lib/python3.*/site-packages")
    shutil.copy(path, site)


def assert_proved(process):
    code, report, errors = ended(process)
    assert code == 0, errors
    assert report["checked"]["records_replayed"] == 400
    assert report["level"] == "replay"


async def test_spark_submit_brings_the_environment(cluster, told, python, tmp_path) -> None:
    """Packed, with --archives, to both workers."""
    give(python, told[1])
    packed = tmp_path / "environment.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(python.parents[1], arcname=".")
    before = cluster.worked()
    assert_proved(run(cluster, told, "./environment/bin/python", "--archives", f"{packed}#environment"))
    assert cluster.worked() == before + 2


async def test_an_app_that_executors_cannot_import_is_named(cluster, told, python) -> None:
    """It is in the driver's folder only."""
    code, _, errors = ended(run(cluster, told, python))
    assert code == 2
    assert "cannot import the app" in errors
    assert "--py-files" in errors
    give(python, told[1])
    assert_proved(run(cluster, told, python))
