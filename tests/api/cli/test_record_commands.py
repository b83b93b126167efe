"""feed, tail and redrive as they are typed, against a real broker with an app that runs."""

import asyncio
import json
import subprocess
import sys
import time

import pytest

from tests.support.deadlines import scaled


async def test_what_is_fed_comes_out_and_dead_letters_go_back_once(desk):
    """Lines in, decoded records out; a dead letter is shown with its reason; after the handler was fixed, redrive sends
    it back once, where it came from, as it was."""
    now_ms = time.time_ns() // 1_000_000  # a broker deletes older records by retention.ms
    one, poison = (
        {"key": "ada", "value": {"amount": 5}, "timestamp_ms": now_ms},
        {"key": "ada", "value": {"amount": 13}, "headers": {"id": "7"}, "timestamp_ms": now_ms + 1},
    )
    lines = "\n".join(json.dumps(each) for each in (one, poison))
    async with desk.harness() as harness:
        fed = await desk.type("feed", f"{desk.name}-in", stdin=lines)
        assert fed.stdout.startswith(f"fed 2 records to {desk.name}-in: partition ")
        await harness.caught_up()
        (sent,) = await desk.tail(f"{desk.name}-out")
        assert (sent["key"], sent["value"]) == ("ada", 5)
        (dead,) = await desk.tail("dead-letters")
        assert (dead["value"], dead["headers"]) == ({"amount": 13}, {"id": "7"})
        assert "ValueError: poison" in dead["dead_letter"]["message"]
        await harness.stop()
    planned = await desk.type("redrive", "--dry-run")
    assert "would be sent back" in planned.stdout
    desk.write(poison=14)
    async with desk.harness() as harness:
        for expected in (f"sent back to {desk.name}-in-", "no dead letters to send back"):
            assert expected in (await desk.type("redrive")).stdout
        await harness.caught_up()
        assert [each["value"] for each in await desk.tail(f"{desk.name}-out")] == [5, 18]
    back = (await desk.tail(f"{desk.name}-in"))[-1]
    assert {name: back[name] for name in poison} == poison
    assert back["partition"] == sent["partition"]


async def test_nothing_is_half_fed_and_every_wrong_name_is_reported(desk, invoke, ledger):
    """Exit code 2, one block, and nothing written."""
    topic = f"{desk.name}-in"
    good = json.dumps({"key": "k", "value": {"amount": 1}})
    refused = await desk.type("feed", topic, stdin=f"{good}\nnonsense", code=2)
    assert "does not exist" in refused.stderr  # the topic: nothing was created
    refused = await desk.type("tail", "dead-letters", code=2)
    assert "has no dead letters" in refused.stderr
    async with desk.harness():
        refused = await desk.type("feed", topic, stdin=f"{good}\nnonsense", code=2)
        assert "line 2: JSON is malformed" in refused.stderr
        assert await desk.tail(topic) == []
        late = json.dumps({"key": "k", "value": {"amount": 1}, "timestamp_ms": 10**14})
        refused = await desk.type("feed", topic, stdin=f"{good}\n{late}", code=2)
        assert f"the broker refuses a record for topic {topic}: InvalidTimestampError" in refused.stderr
        assert await desk.tail(topic) == []
        nothing = await desk.type("feed", topic, "-o", "json", stdin="\n\n")
        assert json.loads(nothing.stdout) == {"topic": topic, "records": 0, "partitions": []}
        beyond = await desk.type("tail", topic, "-p", "9", code=2)
        assert "partition 9 of" in beyond.stderr
    output = await desk.type("feed", f"{desk.name}-out", code=2)
    assert f"is an output of app '{desk.name}'" in output.stderr
    assert f"its inputs: {topic}" in output.stderr
    near = await desk.type("tail", "dead-leters", code=2)
    assert f"did you mean {desk.name}-dead-letters?" in near.stderr
    letters = await desk.type("redrive")
    assert "no dead letters" in letters.stdout


@pytest.mark.parametrize("topic", ["ledger-increments", "snapshots"])
def test_tail_says_whose_records_the_own_topics_of_an_app_hold(invoke, ledger, topic):
    """Before it asks the cluster. They are topics of the app."""
    refused = invoke("tail", ledger, topic)
    assert refused.exit_code == 2
    assert f"-{topic.removeprefix('ledger-')}' holds records of snapreplay itself" in refused.stderr
    assert "`snapreplay history PARTITION`" in refused.stderr


@pytest.mark.whole
async def test_a_reader_that_has_enough_is_no_error(desk):
    """`tail | head -1` ends with 0 and without a word, in the middle of its records."""
    async with desk.harness() as harness:
        lines = "\n".join(json.dumps({"key": "k", "value": {"amount": n}}) for n in range(3000))
        await desk.type("feed", f"{desk.name}-in", stdin=lines)
        await harness.caught_up()
    words = desk.words("tail", f"{desk.name}-in", "--from", "earliest")
    shown, said, code = await asyncio.to_thread(first_line_of, words)
    assert shown.startswith(f"{desk.name}-in-")
    assert (said, code) == ("", 0)


def first_line_of(words):
    """A process whose output is closed after its first line: that line, its standard error, its exit code."""
    with subprocess.Popen(
        [sys.executable, "-m", "snapreplay.api.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        return shown, said, process.wait(scaled(30))
