"""A service inside an asyncio program, against a real broker."""

import pytest

from snapreplay.service.embed import running
from tests.support import apps

pytestmark = pytest.mark.kafka


async def test_what_a_program_sees_of_a_running_service(stage, unique):
    """Live in time, exactly once, a view of the last committed batch per partition, statuses by number."""
    here = await stage(apps.ledger(unique("embed")), partitions=3)
    await here.feed(300)
    async with running(here.app, here.settings()) as service:
        await service.wait_live(30)
        await here.assert_exactly_once(service)
        assert [s.partition for s in service.restore_status()] == [0, 1, 2]
        view = service.view(0)
        with pytest.raises(TypeError):
            view["k0"] = {}  # type: ignore[index]
        with pytest.raises(KeyError):
            service.view(3)
