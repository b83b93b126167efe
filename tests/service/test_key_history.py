"""The history of a key of a running service on a real broker, over HTTP and by the command line."""

import asyncio
from typing import Any

from snapreplay.api.server import HttpServer
from tests.service.test_state_reads import Asking
from tests.service.test_two_processes import live
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.kafka import until_async
from tests.support.stage import snapshot, until
from tests.support.tampering import log_start
from tests.support.waiting import eventually


async def test_how_a_value_came_to_be_is_read_from_the_log(stage: Any, unique: Any) -> None:
    """Set, deleted, set again, each in a batch of its own. Where the log was trimmed, the history begins later
    and says so."""
    here = await stage(apps.told(unique("told")), retention={"snapshots_kept": 2})
    async with here.started(http=HttpServer()) as service:
        await service.wait_live(scaled(40))
        for records in ([("ada", 1), ("bob", 7)], [("ada", None)], [("bob", 8)], [("ada", 2)]):
            await here.send(records)
            await here.all_processed(service)
        async with Asking(service.http_address[1]) as asking:

            async def history() -> Any:
                answer = await asking.client.get("/api/v1/key-history/default/ada", params={"partition": 0})
                assert answer.status_code == 200, answer.text
                return answer.json()

            await here.decided()
            whole = await history()
            assert [(each["value"], each["deleted"]) for each in whole["items"]] == [
                (2, False),
                (None, True),
                (1, False),
            ]
            read = [(each["ranges"][0]["start_offset"], each["ranges"][-1]["end_offset"]) for each in whole["items"]]
            positions = [record.offset for (partition,) in [await here.read(here.input)] for record in partition]
            for (start, end), offset in zip(read, (positions[4], positions[2], positions[0]), strict=True):
                assert start <= offset < end
            assert (whole["is_whole"], whole["from_batch"], whole["batches_without_changes"]) == (True, 0, 0)
            for value in (3, 4):
                await snapshot(service)
                await here.send([("ada", value)])
                await here.all_processed(service)
            # While an owner still trims for the second snapshot, it does not trim for the third one.
            await asyncio.to_thread(eventually, lambda: log_start(here.bootstrap_servers, here.increments, 0))
            await snapshot(service)
            # The owner trims below the older one of two snapshots.
            later = await until_async(history, lambda said: len(said["items"]) == 1)
            assert [each["value"] for each in later["items"]] == [4]
            assert (later["is_whole"], later["batches_without_changes"]) == (False, 0)
            assert whole["items"][0]["batch"] < later["from_batch"] <= later["items"][-1]["batch"]
            code, out, err = await asking.command("get", "--history", "default", "ada")
            assert (code, err.strip()) == (0, f"partition 0: read back to batch {later['from_batch']}, not all of it")
            rows = [line.split() for line in out.splitlines() if here.input in line]
            assert [int(row[3]) for row in rows] == [4]
            answer = await asking.client.get("/api/v1/key-history/default/ada", params={"partition": 1})
            assert answer.json()["type"].endswith("unknown-partition")


async def test_any_process_answers_for_every_partition(stage: Any, unique: Any) -> None:
    """It reads the log itself: of two processes each owns one partition, and both say the same of both."""
    here = await stage(apps.told(unique("told")), partitions=2)
    async with here.started(http=HttpServer()) as one, here.started(http=HttpServer(), instance_id="two") as two:
        await until(lambda: all(len(live(each)) == 1 for each in (one, two)), "one partition each")
        await here.send([("ada", 1), ("ada", 2)])

        async def answers(service: Any) -> list[Any]:
            async with Asking(service.http_address[1]) as asking:
                path = "/api/v1/key-history/default/ada"
                told = [await asking.client.get(path, params={"partition": number}) for number in range(2)]
            return [[each["value"] for each in answer.json()["items"]] for answer in told]

        async def is_there() -> bool:
            return [2] in [values[:1] for values in await answers(one)]

        async with asyncio.timeout(scaled(30)):
            while not await is_there():
                pass
        found = await answers(one)
        assert min(found, key=len) == []
        assert found == await answers(two)
