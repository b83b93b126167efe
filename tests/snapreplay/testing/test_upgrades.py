"""`check_upgrade`: old state, new code, at every cut."""

from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.errors import UsageError
from snapreplay.testing import Diverged, check_upgrade, record

payments, balances = Topic("payments"), Topic("balances")


class Old(msgspec.Struct):
    total: int = 0


class WithDefault(msgspec.Struct):
    total: int = 0
    count: int = 0


class WithoutDefault(msgspec.Struct, kw_only=True):
    total: int = 0
    count: int


def ledger(account: Any = Old, fee: int = 0, **options: Any) -> App[Any]:
    given: dict[str, Any] = {"inputs": [payments], "schema_version": 1, **options}
    app_id = given.pop("app_id", "ledger")
    given.setdefault("state", lambda: MapState(str, account))
    app: App[Any] = App(app_id, outputs=[balances], **given)

    @app.handler(given["inputs"][0])
    def on_payment(record: Any, state: Any, out: Any) -> None:
        found = state[record.key] if record.key in state else msgspec.convert({"count": 0}, account)
        found.total += record.value - fee * (record.value > 5)
        state[record.key] = found
        out.send(balances, key=record.key, value=found.total)

    return app


RECORDS = [record(payments, key=f"k{n % 3}", value=n) for n in range(8)]


def test_the_same_code_takes_over_at_every_cut():
    """Before the first record, after each one, and after the last; nothing differs."""
    report = check_upgrade(ledger(), ledger(), RECORDS)
    assert (report.cuts, report.other_outputs, report.other_state) == (9, (), ())


def test_what_the_new_code_does_otherwise_is_named():
    """A fee for large amounts: the two records that it applies to."""
    report = check_upgrade(ledger(), ledger(fee=1), RECORDS)
    assert [str(one) for one in report.other_outputs] == ["payments-0-6", "payments-0-7"]
    assert report.other_state == report.other_outputs


def test_a_new_field_with_a_default_changes_the_state_only_where_it_is_written():
    """Old values are read; a written one has the new field, so each record leads to another state."""
    report = check_upgrade(ledger(), ledger(WithDefault), RECORDS)
    assert report.other_outputs == ()
    assert len(report.other_state) == len(RECORDS)


def test_a_field_that_would_be_lost_is_found_and_so_is_a_rollback_that_would_lose_one():
    """Removed or renamed, the new app cannot take over; added, the old one could not come back."""
    assert check_upgrade(ledger(), ledger(fee=1), RECORDS).no_way_back == ""
    report = check_upgrade(ledger(), ledger(WithDefault), RECORDS)
    assert "may have the field 'count'" in report.no_way_back
    with pytest.raises(Diverged, match=r"after 1 record: .* may have the field 'count'"):
        check_upgrade(ledger(WithDefault), ledger(), RECORDS)
    dropping = ledger(state=lambda: MapState(str, Old, dropped=("count",)))
    assert "may lack 'count'" in check_upgrade(ledger(WithDefault), dropping, RECORDS).no_way_back


def test_a_type_that_cannot_read_old_values_is_found_at_the_first_cut_with_one():
    """Nothing is stored before the first record."""
    with pytest.raises(Diverged, match=r"after 1 record: the new app cannot take over.*count"):
        check_upgrade(ledger(), ledger(WithoutDefault), RECORDS)


def test_a_new_handler_that_fails_names_the_cut():
    """The old code applies the record."""
    new = ledger()

    def strict(record: Any, state: Any, out: Any) -> None:
        if record.value == 4:
            raise ValueError("no")

    new.handlers[payments] = strict
    with pytest.raises(Diverged, match=r"after 4 records: the new app fails.*payments-0-4"):
        check_upgrade(ledger(), new, RECORDS)


@pytest.mark.parametrize(
    ("changed", "what"),
    [({"app_id": "other"}, "another app id"), ({"schema_version": 2}, "no upgrade from schema_version 1 to 2")],
)
def test_what_the_service_would_refuse_is_refused(changed, what):
    """Nothing is compared then."""
    with pytest.raises(UsageError, match=what):
        check_upgrade(ledger(), ledger(**changed), RECORDS)


class Cents(msgspec.Struct):
    cents: int = 0


def in_cents(upgrade: Any = None) -> App[Any]:
    """The ledger with schema_version 2."""
    app: App[Any] = App(
        "ledger", inputs=[payments], outputs=[balances], state=lambda: MapState(str, Cents), schema_version=2
    )

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        found = state.setdefault(record.key, Cents())
        found.cents += record.value * 100
        out.send(balances, key=record.key, value=found.cents // 100)

    app.upgrade(1, Old)(upgrade or (lambda key, old: (key, Cents(old.total * 100))))
    return app


def test_an_upgrade_that_agrees_with_both_handlers_leads_to_one_state():
    """Upgraded before a record or after it; the old app could not take it back."""
    report = check_upgrade(ledger(), in_cents(), RECORDS)
    assert (report.cuts, report.other_outputs, report.other_state) == (9, (), ())
    assert "no way from schema_version 2 to 1" in report.no_way_back


def test_an_upgrade_that_disagrees_is_named_by_its_records():
    """A third of what the handler books, but for the first record, which books nothing."""
    report = check_upgrade(ledger(), in_cents(lambda key, old: (key, Cents(old.total * 100 // 3))), RECORDS)
    assert len(report.other_state) == 7


def test_an_upgrade_that_fails_is_named_with_its_entry():
    """After the record that made the entry."""

    def fails(key: str, old: Old) -> Any:
        raise ValueError("no rate")

    with pytest.raises(Diverged, match=r"after 1 record: .*state\['k0'\] cannot be upgraded: .*ValueError: no rate"):
        check_upgrade(ledger(), in_cents(fails), RECORDS)
    nowhere = in_cents()
    nowhere.upgrades.clear()
    with pytest.raises(UsageError, match="no upgrade from schema_version 1 to 2"):
        check_upgrade(ledger(), nowhere, RECORDS)


def ringing(name: str) -> App[Any]:
    app: App[Any] = App("ringing", inputs=[payments], outputs=[balances], state=lambda: MapState(str, int))

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        state.schedule(record.key, record.timestamp_ms + 50, timer=name)

    app.timer(name)(lambda timer, state, out: None)
    return app


def test_a_renamed_timer_is_found_before_it_is_due() -> None:
    """Under its old name it is pending, without a handler."""
    records = [record(payments, key="a", value=1, timestamp_ms=7)]
    with pytest.raises(Diverged, match="1 timer 'close' pending, and this app has no handler"):
        check_upgrade(ringing("close"), ringing("closing"), records)
    both = ringing("closing")
    both.timer("close")(lambda timer, state, out: None)
    check_upgrade(ringing("close"), both, records)


refunds = Topic("refunds")


def with_refunds(*others: Topic[Any, Any]) -> App[Any]:
    app = ledger(inputs=[payments, *others])
    for topic in others:

        @app.handler(topic)
        def on_refund(record: Any, state: Any, out: Any) -> None:
            state[record.key].total -= record.value

    return app


def test_an_added_and_a_retired_input_are_checked() -> None:
    """The records of each are applied by the version that has it; the report says what to tell the log."""
    given = [*RECORDS[:4], record(refunds, key="k0", value=1), *RECORDS[4:]]
    report = check_upgrade(ledger(), with_refunds(refunds), given)
    assert report.other_inputs == (
        "input refunds is added: run `snapreplay inputs` with the new version before it starts",
    )
    assert (report.other_outputs, report.other_state, report.cuts) == ((), (), 10)
    back = check_upgrade(with_refunds(refunds), ledger(), given)
    assert back.other_inputs[0].startswith("input refunds is retired")
    assert (back.other_outputs, back.other_state) == ((), ())


def test_a_handler_of_an_added_input_that_fails_on_the_old_state_is_found() -> None:
    """Before it is deployed: the key is not there yet."""
    with pytest.raises(Diverged, match="after 0 records: the new app fails"):
        check_upgrade(ledger(), with_refunds(refunds), [record(refunds, key="k9", value=1), *RECORDS])


def of_stores(
    *names: str, retired: tuple[str, ...] = (), inputs: tuple[Topic[Any, Any], ...] = (payments,)
) -> App[Any]:
    """An app that counts the records of each key, in every store."""
    app: App[Any] = App(
        "stores",
        inputs=inputs,
        state=lambda: Stores(retired=retired, **{name: MapState(str, int, default=int) for name in names}),
    )

    def count(record: Any, state: Any, out: Any) -> None:
        for name in names:
            getattr(state, name)[record.key] += 1

    for topic in inputs:
        app.handler(topic)(count)
    return app


def test_what_is_added_and_retired_as_it_was_meant_passes() -> None:
    """Stores and inputs; the entries of the store that is retired are no obstacle."""
    old, new = of_stores("a", "b"), of_stores("a", "c", retired=("b",), inputs=(refunds,))
    given = [RECORDS[0], record(refunds, key="k0"), *RECORDS[1:]]
    report = check_upgrade(old, new, given, add=[refunds, "c"], retire=[payments, "b"])
    assert [each.split(":")[0] for each in report.other_inputs] == [
        "input refunds is added",
        "input payments is retired",
    ]
    assert check_upgrade(ledger(), ledger(), RECORDS, add=[], retire=[]).cuts == 9


@pytest.mark.parametrize(
    ("new", "said", "why"),
    [
        (of_stores("a", "b", "c"), {"add": []}, "adds store 'c', which is not in add="),
        (of_stores("a", "b"), {"add": ["c"]}, "store 'c' is in add=, but the new app does not add it"),
        (of_stores("a", retired=("b",)), {"retire": []}, "retires store 'b', which is not in retire="),
        (of_stores("a"), {"retire": ["b"]}, r"does not retire it.* add `retired=\('b',\)`"),
        (
            of_stores("a", "b"),
            {"retire": [payments]},
            "input payments is in retire=, but the new app does not retire it",
        ),
        (
            of_stores("a", "b", inputs=(payments, refunds)),
            {"add": ["refunds"]},
            "adds input refunds, which is not in add",
        ),
    ],
)
def test_what_comes_or_goes_otherwise_than_it_was_meant_is_named(new, said, why) -> None:
    """Before a record is applied."""
    with pytest.raises(Diverged, match=why):
        check_upgrade(of_stores("a", "b"), new, RECORDS, **said)
    with pytest.raises(UsageError, match="is no collection"):
        check_upgrade(of_stores("a", "b"), new, RECORDS, add="c")
