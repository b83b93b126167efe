"""A log that does not fit together because it is another topic."""

import pytest

from tests.support.in_memory import virtual


@pytest.mark.parametrize("rest", [0, 3])
@virtual
async def test_a_log_that_does_not_fit_is_known_as_another_topic(bench, rest):
    """Empty, the newest manifest names the topic that its increment was in; with a part of the old log, its increments
    do, and nobody blames two owners."""
    await bench.past()
    old = bench.broker.topic_ids[bench.increments]
    kept = bench.log(bench.increments).committed()
    bench.recreate(bench.increments, kept[len(kept) - rest :])
    error = (await bench.failure()).error
    assert error.kind == ("LogShorter" if rest else "NotInitialised")
    assert error.message.startswith(
        f"topic {bench.increments} was deleted and created again: its id was {old},"
        f" now it is {bench.broker.topic_ids[bench.increments]}; "
    )
    assert "backup or mirror" in error.hint
    assert "snapreplay accept" in error.hint
    assert "two owners" not in error.hint
