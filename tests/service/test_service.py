"""A service inside an asyncio program, against a real broker."""

import asyncio
import logging
import socket
from operator import attrgetter

import httpx2
import pytest

from snapreplay.api.server import HttpServer
from snapreplay.errors import NotBegun, NotLive, ServiceClosed, StopError, UnknownPartition, UsageError
from snapreplay.service.control.operations import RetryPartition
from snapreplay.service.control.protocol import Address
from snapreplay.service.core.owners import SteppedDown
from snapreplay.service.program import ensure_topics, init, run, running
from snapreplay.service.service import HTTP_AFTER_SECONDS, Service
from tests.support import apps, inside
from tests.support.deadlines import scaled, within
from tests.support.kafka import until_async
from tests.support.stage import Stage, phase, settings_for, until

pytestmark = pytest.mark.kafka
is_success = attrgetter("is_success")


async def test_what_a_program_sees_of_a_running_service(stage, unique):
    """LIVE in time, exactly once, a view of the last committed batch per partition, statuses by number."""
    here = await stage(apps.ledger(unique("embed")), partitions=3)
    await here.feed(300)
    async with running(here.app, here.settings()) as service:
        await service.wait_live(scaled(30))
        await here.assert_exactly_once(service)
        assert [s.partition for s in service.restore_status()] == [0, 1, 2]
        view = service.view(0)
        with pytest.raises(TypeError):
            view["k0"] = {}  # type: ignore[index]
        assert list(service.views()) == [0, 1, 2]
        with pytest.raises(UnknownPartition, match="there are 3, from 0"):
            service.view(3)
    with pytest.raises(ServiceClosed):
        len(view)


async def test_a_program_can_take_snapshots(stage, unique):
    """Waits until they are pointed to; all that are LIVE, or those it names."""
    here = await stage(apps.ledger(unique("embed")), partitions=2)
    await here.feed(100)
    async with here.running() as service:
        await here.all_processed(service)
        operation = await asyncio.wait_for(service.trigger_snapshot(reason="before deploy"), scaled(20))
        assert (operation.state, operation.reason) == ("succeeded", "before deploy")
        assert [part.state for part in operation.parts] == ["succeeded", "succeeded"]
        operation = await asyncio.wait_for(service.trigger_snapshot([1]), scaled(20))
        assert [(part.partition, part.state) for part in operation.parts] == [(1, "skipped")]


async def test_who_stepped_down_takes_nothing_back_by_a_retry(stage, unique):
    """A partition had failed before the process stepped down: what it would claim is the other one's now."""
    here = await stage(apps.ledger(unique("retry")))
    async with here.running() as service:
        inside.runner(service).refuse(StopError("partitions were added"))
        epoch = (await phase(service, "failed")).owner_epoch
        inside.membership(service).stepped_down = SteppedDown(10.0)
        operation = service.control.perform(RetryPartition(0))
        inside.membership(service).stepped_down = None
        assert operation.state == "failed"
        assert operation.parts[0].detail.startswith("stepped down for")
        assert service.restore_status()[0].owner_epoch == epoch


# ---- when it cannot ----------------------------------------------------------------------------


async def test_what_is_refused_at_start_is_raised_where_it_is_waited_for(broker, unique):
    """By name, with the command; stop is clean all the same."""
    settings = settings_for(broker.bootstrap_servers)
    async with running(apps.ledger(unique("nothing")), settings) as service:
        with pytest.raises(UsageError, match="does not exist"):
            await service.wait_live(scaled(30))
        with pytest.raises(UsageError, match="does not exist"):
            await service.wait_started()


async def test_a_new_app_waits_for_its_genesis_and_starts_by_itself(broker, unique, caplog):
    """Said once, in log, status and probe, with the command; after `init` it processes, without a restart."""
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("fresh")))
    settings = here.settings()
    await ensure_topics(here.app, settings, create_inputs=1)
    with caplog.at_level(logging.WARNING, "snapreplay"):
        async with running(here.app, settings) as service:
            await until(lambda: service.control.facts().waiting_for, "it waits for its genesis")
            with pytest.raises(NotLive, match=r"none assigned; app .* has not begun") as raised:
                await service.wait_live(0.5)
            assert raised.value.hint.startswith("`snapreplay init ")
            assert "snapreplay init" in service.control.facts().waiting_for
            checks = {each.name: each.ok for each in service.control.ready_checks()}
            assert (checks["genesis"], checks["cluster"]) == (False, True)
            assert all(check.ok for check in service.control.live_checks())
            await init(here.app, settings)
            await here.feed(20)
            await service.wait_caught_up(scaled(30))
            await here.assert_exactly_once(service)
            assert service.control.facts().waiting_for == ""
    assert [r.message.count("WAITING") for r in caplog.records].count(1) == 1


async def test_a_program_can_have_it_refused_or_begun(broker, unique):
    """Both said where the service is made."""
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("fresh")))
    settings = here.settings()
    await ensure_topics(here.app, settings, create_inputs=1)
    async with running(here.app, settings, first_start="refuse") as service:
        with pytest.raises(NotBegun):
            await service.wait_live(scaled(30))
    async with running(here.app, settings, first_start="earliest") as service:
        await service.wait_live(scaled(30))


async def test_an_incomplete_app_is_refused_before_anything_runs(unique):
    """In the constructor: no thread, no socket."""
    app = apps.ledger(unique("half"))
    app.handlers.clear()
    with pytest.raises(UsageError, match="has no handler"):
        Service(app, settings_for("127.0.0.1:9"))
    whole = Service(apps.ledger(unique("whole")), settings_for("127.0.0.1:9"))
    with pytest.raises(ServiceClosed, match="not started"):
        await whole.wait_started()


async def test_a_taken_port_is_refused_by_start(unique):
    """And nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = settings_for("127.0.0.1:9", http={"port": taken.getsockname()[1]})
        service = Service(apps.ledger(unique("port")), settings, HttpServer())
        with pytest.raises(UsageError, match="is taken"):
            await service.start()
        await service.stop()
    assert not inside.background(service).alive


async def test_http_is_up_before_the_cluster_is_reached(unique, closed_port):
    """It says what is waited for, and refuses what needs the cluster; a waiting program learns it in time."""
    settings = settings_for(f"127.0.0.1:{closed_port}")
    async with running(apps.ledger(unique("early")), settings, HttpServer()) as service:
        await until(lambda: inside.control(service).unreachable_reason, "no broker answers")
        said = r"not LIVE after 0\.5 s .*none assigned.*no broker answers"
        with pytest.raises(NotLive, match=said):
            await service.wait_live(0.5)
        host, port = service.http_address or ("", 0)
        url = f"http://{host}:{port}"
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 503
            status = await until_async(lambda: client.get("/restore-status"), is_success)
            assert status.json()["partitions"] == []
            assert (await client.post("/trigger-snapshot", json={})).status_code == 503


async def loop_and_other_tasks():
    return asyncio.get_running_loop(), asyncio.all_tasks() - {asyncio.current_task()}


class Asked:
    """An HTTP server that notes the loops in which it is asked for, and what the service lacked when it was served."""

    def __init__(self) -> None:
        self.asked_in: list[asyncio.AbstractEventLoop] = []
        self.lacked = ""

    def bind(self, settings):
        return Address(settings.host, 1)

    async def serve(self, control, settings, path):
        self.asked_in.append(asyncio.get_running_loop())
        self.lacked = control.unreachable_reason
        return settings.host, 1

    async def close(self, within_seconds, path):
        self.asked_in.append(asyncio.get_running_loop())


async def test_heartbeats_have_a_loop_to_themselves(unique, closed_port):
    """HTTP is asked for elsewhere, and the loop of the membership has no other task."""
    http = Asked()
    settings = settings_for(f"127.0.0.1:{closed_port}")
    async with running(apps.ledger(unique("alone")), settings, http) as service:
        heartbeats, others = await inside.background(service).run(loop_and_other_tasks())
        assert not others
    assert len(http.asked_in) == 2
    assert heartbeats not in http.asked_in


async def refused(*_):
    await asyncio.sleep(0.01)  # as the cluster answers
    raise UsageError("no such topic", hint="make it")


async def test_http_lets_the_start_go_first_and_is_served_when_it_is_refused(unique, monkeypatch):
    """The refusal does not wait for the time limit, and is raised by `wait_started`, not by `start`."""
    monkeypatch.setattr("snapreplay.service.service.begun", refused)
    monkeypatch.setattr("snapreplay.service.service.HTTP_AFTER_SECONDS", 3600)
    http = Asked()
    async with within(30), running(apps.ledger(unique("refused")), settings_for("127.0.0.1:1"), http) as service:
        assert service.http_address == ("127.0.0.1", 1)
        assert http.lacked.startswith("refused: no such topic")
        with pytest.raises(UsageError, match="no such topic"):
            await service.wait_started()


async def test_http_is_served_soon_although_the_start_hangs(unique, monkeypatch):
    monkeypatch.setattr("snapreplay.service.service.begun", lambda *_: asyncio.sleep(3600))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with within(10), running(apps.ledger(unique("hangs")), settings_for("127.0.0.1:1"), Asked()) as service:
        assert service.http_address == ("127.0.0.1", 1)
        assert loop.time() - began >= HTTP_AFTER_SECONDS


def test_a_run_that_is_refused_says_it_once(unique, monkeypatch, caplog):
    """The caller gets the error, so it is not also logged."""
    monkeypatch.setattr("snapreplay.service.service.begun", refused)
    with pytest.raises(UsageError, match="no such topic"):
        run(apps.ledger(unique("once")), settings_for("127.0.0.1:1"), HttpServer())
    assert "no such topic" not in caplog.text


@pytest.mark.parametrize(
    ("http", "advertised"),
    [
        pytest.param({"host": "127.0.0.1"}, "http://127.0.0.1:{port}", marks=pytest.mark.whole),
        # The broker is on this machine.
        ({"host": "0.0.0.0", "insecure": True}, "http://127.0.0.1:{port}"),  # noqa: S104 - that is the case
        ({"advertised_url": "http://ledger-0.ledger:80/"}, "http://ledger-0.ledger:80"),
        pytest.param(None, "", marks=pytest.mark.whole),
    ],
)
async def test_a_process_tells_the_others_its_url(stage, unique, http, advertised):
    """From its first join on; who serves no HTTP has none. No process is its own peer."""
    here = await stage(apps.ledger(unique("url")), http={"port": 0, **(http or {})})
    server = HttpServer() if http is not None else None
    async with here.running(http=server) as one, here.running(instance_id="two") as two:
        await until(lambda: one.control.document().peers and two.control.document().peers, "peers")
        (peer,), (other,) = two.control.document().peers, one.control.document().peers
        _, port = one.http_address or ("", 0)
        assert (peer.instance_id, peer.url) == ("one", advertised.format(port=port))
        assert (other.instance_id, other.url) == ("two", "")


# ---- stopping ----------------------------------------------------------------------------------


async def test_stop_ends_everything(stage, unique):
    """None of our tasks, no thread; a second stop is nothing."""
    here = await stage(apps.ledger(unique("stop")))
    before = asyncio.all_tasks()
    async with here.running() as service:
        pass
    await service.stop()
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    assert not left
    assert not inside.background(service).alive


async def test_stop_ends_everything_also_after_a_defect(unique, monkeypatch):
    """An app's own code may raise anything while the cluster is looked at: no thread, no port is left."""
    app = apps.ledger(unique("defect"))
    service = Service(app, settings_for("127.0.0.1:1"), HttpServer())

    async def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("snapreplay.service.service.begun", broken)
    await service.start()
    with pytest.raises(ZeroDivisionError):
        await service.wait_started()
    await service.stop()
    assert not inside.background(service).alive
