"""The report of an audit as a page: all of it, and nothing that a key or value could make of it."""

import re
from html.parser import HTMLParser

import pytest

from snapreplay.api.audit_page import page
from snapreplay.snapshots.proof.level import Level
from snapreplay.snapshots.proof.proven import Proof
from snapreplay.snapshots.proof.report import (
    AuditedChain,
    AuditReport,
    RecordedDecision,
    SnapshotPlace,
    Stretch,
    Violation,
)

LOG, SNAPS = "ledger-increments", "ledger-snapshots"
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'quoted' \x00 \ud83d"
PROOF = Proof(Level.CHANGES, 9999, 39_000, at_ms=1_795_000_000_000)


class Parsed(HTMLParser):
    """Tags, attributes and texts; says so when a tag is not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def count(self, kind):
        """Elements of this class, those of the legend included."""
        return sum(name == "class" and value == kind for _, name, value in self.attributes)


LEGEND = 1


def chain(number=0, **changed):
    """30,000 offsets with 10,000 batches and 8 snapshots, the first of them trimmed."""
    snapshots = tuple(SnapshotPlace(f"s{i}", i * 1000, 8000 + i * 4000, i * 10, i * 10 + 5, i > 0) for i in range(8))
    facts = {
        "last_offset": 39_000, "first_batch": 0, "last_batch": 9999, "claims": (10_001, 10_002, 30_000),
        "claim_count": 3, "snapshots": snapshots, "proven": PROOF, **changed,
    }  # fmt: skip
    return AuditedChain(number, 10_000, 40_000, facts.pop("audited_from", 10_000), **facts)


def report(chains=(), findings=(), **changed):
    given = {"checked": {"increments": 12_345}, "notes": {"orphans": 0, "foreign_records": 7}, **changed}
    counts = {name: given.pop(name) for name in ("checked", "notes")}
    return AuditReport(
        "ledger", len(chains), counts["checked"], list(findings), counts["notes"], 8.25, chains=list(chains),
        audited_at_ms=1_795_000_000_000, **given,
    )  # fmt: skip


def test_a_verdict_without_findings() -> None:
    """On top; with what was looked at, and notes that are not zero."""
    shown = Parsed(page(report([chain()])))
    assert "No findings" in shown.text
    assert "12,345" in shown.text
    assert "foreign records" in shown.text
    assert "orphans" not in shown.text
    assert "2026-11-18" in shown.text
    assert "batch 9,999" in shown.text
    assert shown.count("finding") == LEGEND


def test_nothing_comes_from_elsewhere() -> None:
    """No script, no link out, no image: it can be mailed and kept. The browser is told so, too."""
    shown = Parsed(page(report([chain()], [Violation("x", LOG, 0, 1, "y")])))
    assert not {"script", "img", "link", "iframe", "object"} & set(shown.tags)
    links = {value for _, name, value in shown.attributes if name in {"href", "src", "style"}}
    assert all(str(each).startswith("#") for each in links)
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in shown.attributes
    assert "url(" not in page(report())
    assert "@import" not in page(report())


def test_what_comes_from_topics_is_text() -> None:
    """Keys, values, names and reasons, wherever they are shown."""
    decision = RecordedDecision(0, 5, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    snapshot = SnapshotPlace(HOSTILE, 1, 12_000, 1, 2, is_there=True)
    hostile = chain(snapshots=(snapshot,), audited_all_because=HOSTILE)
    found = page(
        report(
            [hostile],
            [Violation(HOSTILE, HOSTILE, 0, 5, HOSTILE)],
            decisions=[decision],
            not_recorded=HOSTILE,
            checked={HOSTILE: 1},
        )
    )
    shown = Parsed(found)
    assert not {"script", "img"} & set(shown.tags)
    assert shown.text.count("<script>alert(1)</script>") >= 9
    assert not [name for _, name, _ in shown.attributes if name.startswith("on")]


def test_findings_are_all_there_and_lie_on_the_chain() -> None:
    """Each in full; those at one place are one mark with their number. One of the snapshots topic lies at its snapshot,
    one without a record at the beginning."""
    findings = [
        Violation("replay", LOG, 0, 25_000, "batch 77: key 'k17': recorded 3, replayed 4"),
        *(Violation("envelope", LOG, 0, 25_000 + n, "magic") for n in range(3)),
        Violation("digest", SNAPS, 0, 52, "entries"),
        Violation("genesis", LOG, 0, -1, "none"),
    ]
    shown = Parsed(page(report([chain(proven=None)], findings)))
    assert "6 findings" in shown.text
    assert "recorded 3, replayed 4" in shown.text
    assert shown.count("finding") == LEGEND + 3
    assert shown.count("bar different") == LEGEND + 3
    assert shown.count("bar proven") == LEGEND
    places = re.findall(r'<circle class="finding" cx="(\d+)" cy="15"', page(report([chain()], findings)))
    assert places == sorted(places, key=int)


@pytest.mark.parametrize(
    ("changed", "bars"),
    [
        ({}, {"proven": 8}),
        ({"audited_from": 16_000}, {"proven": 6, "earlier": 1}),
        ({"proven": None}, {"unproven": 8}),
        ({"proven": Proof(Level.CHANGES, 1, 30_000)}, {"proven": 5, "unproven": 3}),
        (
            {"stretches": (Stretch(10_000, 12_000, "no input"), Stretch(12_001, 16_000, "different"))},
            {"noinput": 1, "different": 1, "proven": 6},
        ),
    ],
)  # fmt: skip
def test_a_bar_says_what_is_proven(changed, bars) -> None:
    """One between two snapshots: by this audit, before, not, and why not."""
    shown = Parsed(page(report([chain(**changed)])))
    for kind in ("proven", "earlier", "unproven", "different", "noinput"):
        assert shown.count(f"bar {kind}") - LEGEND == bars.get(kind, 0), kind


def test_it_stays_readable_with_many() -> None:
    """200 partitions with 200 claims each: every chain is one line of a few kB, and claims at one place are one."""
    many = [chain(n, claims=tuple(range(20_000, 20_200)), claim_count=9000, recorded=True) for n in range(200)]
    text = page(report(many, since_last=True))
    assert len(text) < 200 * 4_000
    shown = Parsed(text)
    assert shown.tags.count("svg") == 200 + 9
    assert "9,000 claims" in shown.text
    assert shown.count("claim") <= LEGEND + 200 * 7


def test_an_app_without_partitions_is_a_page() -> None:
    """Nothing was there: it says so."""
    assert "There are none." in Parsed(page(report())).text
    empty = AuditedChain(0, 0, 0, 0)
    assert "none" in Parsed(page(report([empty]))).text
