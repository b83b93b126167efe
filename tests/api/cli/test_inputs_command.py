"""`snapreplay inputs` as it is typed: what it prints, asks and writes. What it decides: tests/service/decisions."""

import asyncio
import json
import sys

from tests.api.cli.test_repair_commands import answered

MORE = """
refunds = Topic("NAME-refunds")
app.inputs = (*app.inputs, refunds)


@app.handler(refunds)
def on_refund(record, state, out):
    pass
"""


async def test_an_input_is_shown_refused_asked_for_and_added(desk, invoke):
    """Nothing is written before it is confirmed; once it is done, there is nothing to do."""
    async with desk.harness() as harness:
        await harness.kill()
        same = await desk.type("inputs")
        assert same.stdout.count("no change") == 2
        desk.file.write_text(desk.file.read_text() + MORE.replace("NAME", desk.name))
        sys.modules.pop("fed_ledger", None)
        missing = await desk.type("inputs", code=2)
        assert f"topic '{desk.name}-refunds' of app '{desk.name}' does not exist" in missing.stderr
        made = await asyncio.to_thread(invoke, "topics", "ensure", *desk.words("ensure", "--partitions", "2")[1:])
        assert made.exit_code == 0, made.output
        nowhere = await desk.type("inputs", "--yes", code=2)
        assert f"new input {desk.name}-refunds needs a place to begin" in nowhere.stderr
        dry = await desk.type("inputs", "--from", "earliest", "--dry-run")
        assert dry.stdout.count(f"input {desk.name}-refunds is read from offset 0 on") == 2
        assert dry.stdout.endswith("dry run: nothing was written\n")
        said, code = await asyncio.to_thread(answered, desk.words("inputs", "--from", "latest"), b"n\n")
        assert (said.endswith("nothing was changed"), code) == (True, 2)
        done = await desk.type("inputs", "--from", "earliest", "--yes", "--reason", "refunds begin", "-o", "json")
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(each["partition"], each["decision"]["reason"]) for each in told] == [
            (0, "refunds begin"),
            (1, "refunds begin"),
        ]
        assert (await desk.type("inputs", "--yes")).stdout.count("no change") == 2
