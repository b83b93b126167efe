"""Hints for a program that runs a service inside itself, and for whoever starts one: done as printed."""

import asyncio
import re
from typing import Any

import pytest

from snapreplay import Service, ensure_topics, init, running
from snapreplay.errors import PartitionNotLive, ServiceClosed, UsageError
from tests.support import apps

pytestmark = pytest.mark.kafka


async def test_a_view_is_read_when_it_is_there_in_its_loop(stage, unique):
    """Each refusal says where and when instead: inside of `running`, after `wait_live`, in an `async def`."""
    here = await stage(apps.ledger(unique("viewed")))
    service = here.service()
    with pytest.raises(ServiceClosed) as closed:
        service.view(0)
    assert "`async with running(app, settings) as service:`" in closed.value.hint
    async with running(here.app, here.settings()) as service:
        with pytest.raises(PartitionNotLive) as early:
            service.view(0)
        assert "`await service.wait_live()`" in early.value.hint
        assert service.views() == {}
        await service.wait_live()
        assert len(service.view(0)) == len(service.views()[0]) == 0
        with pytest.raises(UsageError) as elsewhere:
            await asyncio.to_thread(service.view, 0)
        assert "`async def`" in elsewhere.value.hint


async def test_a_callback_makes_a_task(stage, unique):
    """A plain function that creates one, as printed."""
    here = await stage(apps.ledger(unique("told")))
    told = asyncio.Event()

    async def tell() -> None:
        told.set()

    async with here.running() as service:
        with pytest.raises(UsageError) as refused:
            service.on_failed(tell)
        assert "`asyncio.create_task(…)`" in refused.value.hint
        tasks = []
        service.on_failed(lambda *_: tasks.append(asyncio.create_task(tell())))
        await here.send([("a", {"amout": 1})])
        await told.wait()


async def test_a_typing_error_never_says_where_an_app_begins(stage, unique):
    """It would skip all records, or wait for ever. Each value that the hint names is accepted."""
    here = await stage(apps.ledger(unique("typed")))
    app, settings = here.app, here.settings()
    typed: Any = "lastest"
    with pytest.raises(UsageError, match="start='lastest'") as start:
        await init(app, settings, start=typed)
    for each in re.findall(r"'(\w+)'", start.value.hint):
        assert len(await init(app, settings, start=each)) == 1
    with pytest.raises(UsageError, match="first_start='lastest'") as first_start:
        Service(app, settings, first_start=typed)
    for each in re.findall(r"'(\w+)'", first_start.value.hint):
        Service(app, settings, first_start=each)
    counts: list[Any] = [0, "4"]
    for count in counts:
        with pytest.raises(UsageError, match=f"{count!r} is not a number of partitions"):
            await ensure_topics(app, settings, create_inputs=count)
    assert "ok" in (await ensure_topics(app, settings, create_inputs=1))[0]


async def test_where_to_begin_is_said_with_init(newcomer):
    """`--from` alone is refused; with the option of the hint it begins there. The deadline of a stop ends it."""
    who = newcomer()
    said = await who.type("run", "hinted:app", "--from", "latest", code=2)
    assert "`--init`" in said
