"""Attack B15: a bad deploy drains the whole input into the dead letters; and a dead letter that does not fit fails for
ever."""

import json

import pytest

from snapreplay.app.ranges import SkippedRange
from snapreplay.service.ports import NewTopic
from tests.support import apps, reference
from tests.support.stage import phase

LETTER_BYTES_MAX = 20_000


@pytest.mark.kafka
async def test_b15_a_flood_stops_and_a_letter_too_large_goes_without_its_value(stage, unique):
    """The input is drained no further than the limit, FAILED; and a record that does not fit into the dead-letter
    topic is there all the same, with its offset and its reason, as a range of the skip list."""
    name = unique("b15")
    app = apps.ledger(name, apps.refuse_poison)
    aside = await stage(apps.ledger(unique("aside")))
    limit = {"max.message.bytes": str(LETTER_BYTES_MAX)}
    await aside.cluster.create_topics([NewTopic(f"{name}-dead-letters", 1, config=limit)])
    errors = {"policy": "dead_letter", "dead_letters_consecutive_max": 5}
    here = await stage(app, errors=errors, batch={"records_max": 4, "linger_ms": 0})
    large = {"amount": 0, "poison": True, "padding": "x" * 2 * LETTER_BYTES_MAX}
    await here.send([("a", large), ("a", large), ("a", {"amount": 1})])
    async with here.running() as service:
        await here.all_processed(service)
        await here.send([("a", {"amount": 1, "poison": True})] * 100)
        status = await phase(service, "failed")
    assert status.error.kind == "DeadLetterLimitReached"
    letters = (await here.read(f"{name}-dead-letters"))[0]
    assert 5 < len(letters) - 2 <= 12
    for offset, letter in enumerate(letters[:2]):
        why = dict(letter.headers)
        assert letter.value is None
        assert why["__snapreplay.errors.dropped"] == b"value"
        assert why["__snapreplay.errors.offset"] == str(offset).encode()
        assert b"poison" in why["__snapreplay.errors.message"]
    assert json.loads(letters[2].value or b"")["poison"]
    topic = app.inputs[0].name
    first = next(each for each in await here.batches() if each.skipped)
    assert first.skipped[0].topic == topic
    assert first.skipped[0].start_offset == 0
    assert all(isinstance(part, SkippedRange) for part in first.skipped)
    assert len(reference.decoded((await here.read(app.outputs[0].name))[0])) == 1
