"""Attack B5: a group that subscribes to several inputs gives partition 0 of one to A and of the other to B; both own
state partition 0, and fence each other for ever."""

import asyncio

import pytest

from tests.support import apps
from tests.support.child import Load
from tests.support.stage import until

pytestmark = pytest.mark.kafka
PARTITIONS = 3  # odd: round robin over (topic, partition) of two inputs would tear them apart


@pytest.mark.whole
async def test_b5_a_state_partition_has_one_owner_for_all_its_inputs(stage, unique, children):
    """Two processes, two inputs: the group knows the increments topic only, each partition's inputs are read by its
    one owner, nobody is fenced after the move, and both inputs are folded whole and in order."""
    here = await stage(apps.pair(unique("b5")), partitions=PARTITIONS)
    name = here.app.app_id
    left, right = (topic.name for topic in here.app.inputs)
    with Load(here, left), Load(here, right):
        one = children.start("pair", name, instance_id="one")
        await asyncio.to_thread(one.wait_live, PARTITIONS)
        two = children.start("pair", name, instance_id="two")
        await asyncio.to_thread(two.wait_http)
        await until(lambda: len(one.live()) + len(two.live()) == PARTITIONS and two.live(), "shared")
        members = await here.cluster.group_members(name)
        given = [source for member in members for source in member.partitions]
        assert {source.topic for source in given} == {f"{name}-increments"}
        assert sorted(source.partition for source in given) == list(range(PARTITIONS))
        owners = {**owner_epochs(one), **owner_epochs(two)}
        assert one.live() & two.live() == set()
        before = one.processed() + two.processed()
        await until(lambda: one.processed() + two.processed() > before + 100, "100 records more")
        assert {**owner_epochs(one), **owner_epochs(two)} == owners, "nobody was fenced"
    for child in (one, two):
        assert await asyncio.to_thread(child.terminate) == 0
    async with here.running() as service:
        await here.assert_merged(service)


def owner_epochs(child):
    return {n: p["owner_epoch"] for n, p in child.partitions().items() if p["phase"] == "live"}
