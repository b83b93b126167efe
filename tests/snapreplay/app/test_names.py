"""Names in Kafka are those of docs/FORMAT.md: two owners must meet at the same name."""

from snapreplay.app import names


def test_names_are_derived_from_the_app_id_alone():
    """Written out here: a changed name would be another app to every cluster."""
    assert names.increments_topic("ledger") == "ledger-increments"
    assert names.snapshots_topic("ledger") == "ledger-snapshots"
    assert names.dead_letters_topic("ledger") == "ledger-dead-letters"
    assert names.transactional_id("ledger", 3) == "ledger-3"


def test_an_app_cannot_name_one_of_them_as_its_own():
    """What the service writes is refused as an input or output."""
    ours = [names.increments_topic, names.snapshots_topic, names.dead_letters_topic]
    assert {name("a") for name in ours} <= {f"a-{suffix}" for suffix in names.OWN_SUFFIXES}
