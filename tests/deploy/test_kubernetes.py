"""deploy/kubernetes: what can be known of it without a cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.service.config.settings import load_settings
from tests.deploy.dockerfile import ROOT, command, last, named

FOLDER = ROOT / "deploy/kubernetes"
FILES = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yaml")
}
JOB: dict[str, Any] = FILES["audit-cronjob"]["spec"]
POD: dict[str, Any] = JOB["jobTemplate"]["spec"]["template"]["spec"]
APPLICATION: dict[str, Any] = FILES["audit-spark-application"]["spec"]
SPARK = named((ROOT / "Dockerfile").read_text(encoding="utf-8"), "spark")
ENTRYPOINT = ROOT / "deploy/spark-entrypoint.sh"


def test_these_are_all() -> None:
    """A file that is added is looked at here."""
    assert set(FILES) == {"audit-cronjob", "audit-spark-application"}


@pytest.mark.parametrize(
    "words", [POD["containers"][0]["args"][1:], APPLICATION["arguments"]], ids=["cron", "spark"]
)
def test_every_command_exists(words) -> None:
    """With these options; both record what they prove, in a form for machines."""
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0, result.output
    for option in (each for each in words if each.startswith("--")):
        assert option in result.output
    assert "--since-last" in words
    assert words[-2:] == ["--output", "json"]


@pytest.mark.parametrize(
    "env", [POD["containers"][0]["env"], APPLICATION["driver"]["env"]], ids=["cron", "spark"]
)
def test_every_setting_exists(env) -> None:
    """As at start: no misspelt name."""
    settings = load_settings(environment={each["name"]: each["value"] for each in env})
    assert settings.bootstrap_servers == ["kafka-0:9092", "kafka-1:9092"]


def test_a_finding_is_not_retried_and_audits_do_not_meet() -> None:
    """The exit code is the verdict; the next hour is the next attempt."""
    assert JOB["concurrencyPolicy"] == "Forbid"
    assert JOB["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert POD["restartPolicy"] == "Never"
    assert APPLICATION["restartPolicy"] == {"type": "Never"}
    assert re.fullmatch(r"(\S+ ){4}\S+", JOB["schedule"])
    assert JOB["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 3600


def test_they_run_as_the_user_of_the_image() -> None:
    """Not root, with a file system that cannot be written to but for /tmp, which is also home."""
    user = int(last(SPARK, "USER").split(":")[0])
    contexts = [
        POD["securityContext"],
        *(APPLICATION[p]["securityContext"] for p in ("driver", "executor")),
    ]
    assert {each["runAsUser"] for each in contexts} == {user}
    (container,) = POD["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/tmp"]  # noqa: S108 - of the pod


def test_the_program_is_where_the_image_has_it() -> None:
    """A file of the wheel, below where the image installs it; and the version of Spark is the locked one."""
    scheme, path = APPLICATION["mainApplicationFile"].split("://")
    assert scheme == "local"
    site = "/opt/snapreplay/lib/python3.11/site-packages"
    assert f"SPARK_HOME={site}/pyspark" in last(SPARK, "ENV")
    assert (ROOT / Path(path).relative_to(site)).is_file()
    assert (
        f"pyspark=={APPLICATION['sparkVersion']}" in (ROOT / "requirements/spark.lock").read_text()
    )


def test_the_image_calls_the_entry_point() -> None:
    """It is copied, may be run, and its default command says what there is."""
    assert any(
        rest.split()[0] == "deploy/spark-entrypoint.sh" for word, rest in SPARK if word == "COPY"
    )
    assert ENTRYPOINT.stat().st_mode & 0o111
    assert command(SPARK, "ENTRYPOINT") == ["/opt/entrypoint.sh"]
    assert command(SPARK, "CMD")[:2] == ["snapreplay", "audit"]


SPARKS_WORDS = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_JAVA_OPT_0": "-Da=b c",
    "SPARK_JAVA_OPT_1": "-Dd=$HOME",
}


def called(tmp_path, *words, **env) -> list[str]:
    """What the entry point runs in place of itself: each program found first on its path says what it was given."""
    for name in ("java", "spark-submit"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        [ENTRYPOINT, *words], env={"PATH": path, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_an_executor_gets_all_that_spark_says(tmp_path) -> None:
    """Every word of the environment, options with blanks in one piece."""
    java, *words = called(tmp_path, "executor", **SPARKS_WORDS)
    assert java == f"{tmp_path}/java"
    assert words[:4] == ["-Da=b c", "-Dd=$HOME", "-Xms1g", "-Xmx1g"]
    assert words[4:6] == ["-cp", "/spark/conf:/spark/jars/*"]
    options = dict(zip(words[7::2], words[8::2], strict=True))
    assert options == {
        "--driver-url": SPARKS_WORDS["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "pod-3",
    }


def test_a_driver_is_a_spark_submit(tmp_path) -> None:
    """In client mode: the pod is the driver already."""
    words = called(tmp_path, "driver", "--properties-file", "p", "local:///a.py", **SPARKS_WORDS)
    assert words[0] == f"{tmp_path}/spark-submit"
    assert words[1:] == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client"),
        *("--properties-file", "p", "local:///a.py"),
    ]


def test_anything_else_is_a_command(tmp_path) -> None:
    """As in the CronJob."""
    assert called(tmp_path, "echo", "a b") == ["a b"]
