"""`run --processes`: several workers, and one process to its operator."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import Any

import httpx2
import psutil
import pytest

from snapreplay.api.cli.worker import Worker
from snapreplay.api.server import reserve
from snapreplay.devbroker.free_ports import free_ports, is_free
from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import Settings
from tests.api.test_tls import Authority
from tests.support import apps
from tests.support.child import Load, family, workers
from tests.support.deadlines import is_running, scaled
from tests.support.stage import Stage
from tests.support.truths import agreed, all_live
from tests.support.waiting import eventually

WORKERS = ("--processes", "2")


@pytest.fixture
def parents(tmp_path, broker):
    """`parents.start("ledger", app_id)` starts two workers under a parent."""
    with family(broker.bootstrap_servers, tmp_path) as started:
        yield started


@pytest.fixture
def idle(tmp_path, nobody_there):
    """A parent whose workers wait for a cluster."""
    with family(nobody_there, tmp_path) as started:
        parent = started.start("ledger", "idle", options=WORKERS, timeouts__shutdown_ms=1000)
        parent.wait_http()
        parent.until(lambda: answer(parent, "/startupz").status_code == 200, "all have started")
        yield parent


def family_of(parent):
    """The ids of all processes below it."""
    return {each.pid for each in psutil.Process(parent.pid).children(recursive=True)}


def answer(parent, path):
    """The answer of the one address; one moment without an answer, while another worker takes it, is no failure."""
    answers: list[httpx2.Response] = []

    def is_answered():
        with suppress(httpx2.TransportError):
            answers.append(httpx2.get(parent.url + path, trust_env=False, timeout=scaled(5)))
        return answers

    parent.until(is_answered, f"answer at {parent.url}")
    return answers[0]


def phases(parent):
    return {each["partition"]: each["phase"] for each in answer(parent, "/restore-status").json()["partitions"]}


def live(parent):
    return [number for number, phase in phases(parent).items() if phase == "live"]


def instances(parent):
    return {each["instance_id"] for each in answer(parent, "/api/v1/processes").json()["items"]}


def answers_for_all(parent):
    """The number of the worker that answers at the one address."""
    return int(answer(parent, "/api/v1").json()["instance_id"].rpartition("-")[2])


def kill_who_answers(parent):
    """Kill the worker that answers at the one address, and wait until all are live again."""
    number = answers_for_all(parent)
    os.kill(parent.pid, signal.SIGSTOP)  # else the one that is killed may be back before the other takes the address
    workers(parent)[number].kill()
    parent.until(lambda: answers_for_all(parent) == 1 - number, "the other one answers")  # its HTTP ends a moment later
    assert len(phases(parent)) == 4
    os.kill(parent.pid, signal.SIGCONT)
    parent.until(lambda: number in workers(parent), "it is started again")
    parent.until(lambda: answer(parent, "/readyz").status_code == 200, "both are ready")
    parent.until(lambda: len(live(parent)) == 4, "four live partitions again")


@pytest.mark.kafka
async def test_a_worker_is_killed_under_load_and_every_record_counts_once(parents, broker, unique):
    """The one address goes on to answer for the app, the worker comes back with its name and its partitions, and
    SIGTERM ends all with 0."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("workers")), partitions=4).prepare()
    with Load(here):
        parent = parents.start("ledger", here.app.app_id, options=WORKERS, instance_id="ledger")
        parent.wait_http()
        await asyncio.to_thread(parent.until, lambda: instances(parent) == {"ledger-0", "ledger-1"}, "both have joined")
        await asyncio.to_thread(parent.until, lambda: len(live(parent)) == 4, "four live partitions")
        await asyncio.to_thread(kill_who_answers, parent)
        below = family_of(parent)
    assert await asyncio.to_thread(parent.terminate) == 0
    assert not [each for each in below if is_running(each)]
    assert parent.log.count("killed by SIGKILL; restart 1 follows in 0.5 s") == 1
    async with here.running() as service:
        await here.assert_exactly_once(service)


def told_by_all(parent):
    """Wait until all three workers and the one address say that all partitions are live; their addresses and that."""
    found: list[Any] = []

    def are_live() -> Any:
        found[:] = [all_live(parent.url, 3, 6)]
        return found[0]

    parent.until(are_live, "all say that all are live")
    return found[0]


@pytest.mark.whole
@pytest.mark.kafka
async def test_three_workers_are_killed_in_turn_and_all_others_tell_the_same(parents, broker, unique):
    """Whoever is asked, at its own address or at the one of all, names the same owner, epoch and phase of each
    partition; the one that is dead owns nothing any more, and the next claim has a higher epoch."""
    here = await Stage(broker.bootstrap_servers, apps.ledger(unique("truth")), partitions=6).prepare()
    parent = parents.start("ledger", here.app.app_id, options=("--processes", "3"), instance_id="ledger")
    parent.wait_http()
    for number in range(3):
        urls, before = await asyncio.to_thread(told_by_all, parent)
        names = {
            each["instance_id"]: each["process_id"] for each in answer(parent, "/api/v1/processes").json()["items"]
        }
        dead = names[f"ledger-{number}"]
        survivors = [parent.url, *(url for process_id, url in urls.items() if process_id != dead)]
        workers(parent)[number].kill()

        def agree(survivors=survivors, dead=dead):
            told = agreed(survivors)
            return told and dead not in {each.process_id for each in told.values()}

        await asyncio.to_thread(parent.until, agree, "those that are left tell the same")
        _, after = await asyncio.to_thread(told_by_all, parent)
        lost = [partition for partition, each in before.items() if each.process_id == dead]
        assert lost
        assert all(after[partition].owner_epoch > before[partition].owner_epoch for partition in lost)
    assert await asyncio.to_thread(parent.terminate) == 0


@pytest.mark.kafka
def test_what_no_restart_repairs_ends_all_with_its_code(parents, unique):
    """The app's input is missing: 2, as of one process."""
    parent = parents.start("ledger", unique("nowhere"), options=WORKERS)
    assert parent.process.wait(scaled(40)) == 2
    assert "a restart would find the same: exit code 2" in parent.log
    assert "restart 1" not in parent.log


def test_what_was_made_wrong_meanwhile_stops_no_worker_that_runs(tmp_path, nobody_there):
    """A worker that crashed is refused: it is tried again until its file is there, while the other goes on. Without any
    other, all end with the code."""
    token = tmp_path / "token"
    token.write_text("0" * 64)
    with family(nobody_there, tmp_path) as started:
        files = {"timeouts__shutdown_ms": 1000, "http__token_file": token}
        parent = started.start("ledger", "idle", options=WORKERS, **files)
        parent.wait_http()
        parent.until(lambda: answer(parent, "/startupz").status_code == 200, "both have started")
        token.rename(tmp_path / "away")
        other = workers(parent)[0].pid
        workers(parent)[1].kill()
        parent.until(lambda: "worker 1 ended: exit code 2; restart 2 follows" in parent.log, "it is refused")
        (tmp_path / "away").rename(token)
        parent.until(lambda: answer(parent, "/startupz").status_code == 200, "both have started again")
        assert workers(parent)[0].pid == other
        token.unlink()
        for each in workers(parent).values():
            each.kill()
        assert parent.process.wait(scaled(40)) == 2


def test_no_worker_outlives_its_parent(idle):
    """Neither the workers nor their HTTP processes."""
    below = family_of(idle)
    assert len(below) == 4
    idle.kill()
    eventually(lambda: not [each for each in below if is_running(each)], "all have ended")


@pytest.mark.whole
def test_the_probes_are_about_all_workers(idle):
    """A worker that is gone makes the app unready and is started again, so it is no reason to kill all; a frozen one
    is. Each worker answers for itself with `scope=local`."""
    own, other = answers_for_all(idle), 1 - answers_for_all(idle)
    names = {each["name"] for each in answer(idle, "/readyz").json()["checks"]}
    assert f"worker {other}" in names
    assert f"worker {own}" not in names
    assert not [each for each in answer(idle, "/readyz?scope=local").json()["checks"] if "worker" in each["name"]]
    workers(idle)[other].suspend()
    check = {}

    def told(path, text):
        (found,) = [each for each in answer(idle, path).json()["checks"] if each["name"] == f"worker {other}"]
        check.update(found)
        return text in found["detail"]

    idle.until(lambda: told("/healthz", "service process"), "the frozen one is told of")
    assert not check["ok"]
    os.kill(idle.pid, signal.SIGSTOP)  # else it may be started again before anybody has looked
    workers(idle)[other].kill()
    idle.until(lambda: told("/healthz", "refuses connections"), "the dead one is told of")
    assert check["ok"]
    os.kill(idle.pid, signal.SIGCONT)
    idle.until(lambda: answer(idle, "/startupz").status_code == 200, "it is started again")
    (url,) = {f"http://127.0.0.1:{port}" for port in ports_of(workers(idle)[other])}
    counted = httpx2.get(url + "/metrics", trust_env=False).text
    assert 'snapreplay_worker_restarts_total{app="idle"} 1.0' in counted


def ports_of(process):
    (http,) = process.children()
    return [each.laddr.port for each in http.net_connections("tcp") if each.status == psutil.CONN_LISTEN]


def test_workers_answer_and_ask_each_other_by_tls(tmp_path, nobody_there):
    """At the address of all, and for the probes of the others, to whom they show no certificate."""
    certificate, key = Authority(tmp_path, "any").signed("server")
    files = {"http__tls_certificate_file": certificate, "http__tls_key_file": key, "http__client_ca_file": certificate}
    with family(nobody_there, tmp_path) as started:
        parent = started.start("ledger", "idle", options=WORKERS, timeouts__shutdown_ms=1000, **files)
        parent.wait_http()
        with httpx2.Client(verify=False, trust_env=False, base_url=parent.url) as asking:
            found: list[dict[str, object]] = []

            def both_have_started():
                with suppress(httpx2.TransportError):
                    found[:] = asking.get("/startupz").json()["checks"]
                return len([each for each in found if each["ok"] and str(each["name"]).startswith("worker")]) == 1

            parent.until(both_have_started, "one answers for both")
            assert parent.url.startswith("https:")
            assert asking.get("/restore-status").status_code == 403


def test_signals_reach_each_worker_and_one_that_is_frozen_is_cut_off(idle):
    """Each line says whose it is; those of the parent have no number. The code is 6, as of one process."""
    os.kill(idle.pid, signal.SIGUSR1)
    told = [f"WARNING worker {number} snapreplay: SIGUSR1" for number in range(2)]
    idle.until(lambda: all(each in idle.log for each in told), "each says what it does")
    frozen = workers(idle)[1]
    frozen.suspend()
    below = family_of(idle)
    assert idle.terminate() == 6
    assert f"worker 1 has not stopped: process {frozen.pid} is killed" in idle.log
    assert "INFO    snapreplay.workers: SIGTERM: all workers stop" in idle.log
    eventually(lambda: not [each for each in below if is_running(each)], "all have ended")


@pytest.mark.parametrize(
    ("advertised", "told"),
    [
        ("", ""),
        ("http://ledger-0.ledger:9000", "http://ledger-0.ledger:9002"),
        ("http://[::1]:90", "http://[::1]:92"),
        ("https://ledger-0.ledger", "https://ledger-0.ledger:445"),
    ],
)
def test_a_worker_is_advertised_at_its_own_port(advertised, told):
    """As far from the advertised port as its port is from the app's."""
    given = Settings(http=HttpSettings(port=8080, advertised_url=advertised))
    settings = Worker(1, 1, 0, "ledger-1", [8081, 8082], 8080, [9090, 9091, 9092], 9).settings(given)
    assert settings.instance_id == "ledger-1"
    assert (settings.http.port, settings.http.advertised_url) == (8082, told)


def test_ports_that_do_not_exist_are_refused(invoke, ledger):
    """The last worker would have 65536."""
    ended = invoke("run", ledger, "--processes", "2", "--http-port", "65534")
    assert ended.exit_code == 2
    assert "port 65536 does not exist" in ended.stderr


def test_a_parent_waits_for_no_workers_of_another_one_and_says_what_to_do(invoke, ledger, idle):
    """In an outage the workers of a parent that was killed take their time: choosing another port is not what helps."""
    _, _, port = idle.url.rpartition(":")
    ended = invoke("run", ledger, "--processes", "2", "--http-port", port)
    assert ended.exit_code == 2
    assert f"port {port} on 127.0.0.1 is taken" in ended.stderr
    assert "timeouts.shutdown_ms" in ended.stderr
    idle.kill()

    def is_free_again() -> bool:
        with suppress(UsageError):
            reserve("127.0.0.1", int(port)).close()
            return True
        return False

    eventually(is_free_again, "its workers have stopped")


def first_of_three_ports():
    """Return the first of three free ports in a row, none of which the system gives to outgoing connections."""
    starts = (free_ports(1)[0] for _ in range(1000))
    return next(start for start in starts if is_free(start + 1) and is_free(start + 2))


def test_each_worker_has_a_port_for_its_probes_and_one_answers_for_all(tmp_path, nobody_there):
    """As with the ports of the API: the first is about all workers, each other one is a worker's, with its metrics."""
    start = first_of_three_ports()
    with family(nobody_there, tmp_path) as started:
        parent = started.start("ledger", "idle", options=WORKERS, timeouts__shutdown_ms=1000, http__probes_port=start)
        parent.wait_http()

        def at(number, path):
            with suppress(httpx2.TransportError):
                return httpx2.get(f"http://127.0.0.1:{start + number}{path}", trust_env=False, timeout=scaled(5))

        def both_are_probed():
            found = at(0, "/startupz")
            checks = found.json()["checks"] if found and found.status_code == 200 else ()
            return [each for each in checks if "worker" in each["name"]]

        parent.until(both_are_probed, "one answers for both")
        for number in (1, 2):
            parent.until(partial(at, number, "/metrics"), "its metrics")
            assert "snapreplay_build_info" in at(number, "/metrics").text
            assert at(number, "/api/v1").status_code == 404


def test_the_ports_of_probes_must_not_be_those_of_the_api(invoke, ledger):
    """Two workers take three ports of each: the hint names the setting."""
    ended = invoke("run", ledger, "--processes", "2", "--http-port", "28080", "--set", "http.probes_port=28079")
    assert ended.exit_code == 2
    assert "port 28080 is one of http.port and one of http.probes_port" in ended.stderr
    assert "http.probes_port" in ended.stderr
