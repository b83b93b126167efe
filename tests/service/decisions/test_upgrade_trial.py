"""An upgrade that is tried on all partitions: what would fail is named, and nothing is written."""

from snapreplay.service.decisions.upgrade_trial import try_upgrade
from tests.service.recovery.test_upgrade import folded, second


async def tried(bench, app):
    return await try_upgrade(app, bench.settings(), bench.cluster, lambda _: None)


async def test_nothing_is_written_and_the_owner_continues(bench):
    """Beside the old version, which commits in between."""
    await bench.past()
    async with bench.live() as one:
        before = len(bench.batches())
        (trial,) = await tried(bench, second(bench))
        assert (trial.error, trial.schema_version, trial.entries) == (None, 1, len(folded(120)))
        assert trial.upgraded == trial.entries
        assert len(bench.batches()) == before
        await one.feed(1)
    async with bench.live(second(bench)) as one:
        assert one.view() == folded(121)
    (trial,) = await tried(bench, second(bench))
    assert (trial.error, trial.schema_version, trial.upgraded) == (None, 2, None), "it is upgraded already"


async def test_what_would_fail_is_named(bench):
    """An entry, a result that is another one each time, a version without a way, and a type that cannot read."""
    await bench.past()
    calls = iter(range(10**6))

    def fails(key, old):
        if key == "k7":
            raise ValueError("no rate")
        return key, old["sum"]

    (trial,) = await tried(bench, second(bench, fails))
    assert "state['k7'] cannot be upgraded: " in trial.error.message
    assert trial.upgraded is None
    (trial,) = await tried(bench, second(bench, lambda key, old: (key, next(calls))))
    assert "becomes something else each time" in trial.error.message
    app = second(bench)
    app.upgrades.clear()
    (trial,) = await tried(bench, app)
    assert type(trial.error).__name__ == "SchemaDiffers"
    app = second(bench)
    app.schema_version, app.upgrades = 1, {}
    (trial,) = await tried(bench, app)
    assert type(trial.error).__name__ in ("StoredValueUnreadable", "UnknownFields")
    await bench.restored()
