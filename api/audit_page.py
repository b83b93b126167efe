"""The report of an audit as one self-contained page: no script, no font, no image from elsewhere. A partition's chain
is a picture: one line of SVG, of the same size for ten batches and for ten thousand. Pure.

Everything that comes from the topics is escaped: keys and values may hold anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import pairwise

from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.snapshots.proof.proven import Proof
from snapreplay.snapshots.proof.report import AuditedChain, AuditReport, Violation

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

WIDTH, HEIGHT = 720, 34
_LEFT, _RIGHT = 14, WIDTH - 10
_TOP, _BAR, _BOTTOM = 9, 12, 21

LEGEND: Sequence[tuple[str, str]] = (
    ("bar proven", "proven by this audit"),
    ("bar earlier", "proven by an earlier audit, not read again"),
    ("bar unproven", "read, not proven"),
    ("bar different", "a finding here"),
    ("bar noinput", "not replayed: its input is gone"),
    ("trimmed", "trimmed"),
    ("snapshot", "full snapshot (hollow: trimmed)"),
    ("claim", "claim of an owner"),
    ("finding", "findings"),
)
"""Class of a sign, and what it means."""


def page(report: AuditReport) -> str:
    """Write a whole HTML document."""
    style = (files(__package__) / "audit_page.css").read_text(encoding="utf-8")
    title = escape(f"Audit of {report.app_id}: {verdict(report)}")
    parts = "\n".join((_findings(report), _chains(report), _counts(report), _decisions(report)))
    body = f"{_head(report)}\n<main>{parts}</main>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def verdict(report: AuditReport) -> str:
    """Say in two words how the audit ended."""
    return counted(len(report.findings), "finding") if report.findings else "no findings"


def _head(report: AuditReport) -> str:
    kind = "bad" if report.findings else "good"
    facts = [f"level {report.level}", counted(report.partition_count, "partition"), f"{report.seconds:.1f} s"]
    if report.audited_at_ms:
        facts.insert(0, _time(report.audited_at_ms))
    if report.since_last:
        facts.append("since the last proof")
    lines = [f"<p>{escape(' · '.join(facts))}</p>"]
    if report.not_recorded:
        lines.append(f"<p><strong>The proof was not recorded:</strong> {escape(report.not_recorded)}</p>")
    return (
        f'<header class="{kind}"><p class="app">{escape(report.app_id)}</p>'
        f"<h1>{escape(verdict(report).capitalize())}</h1>{''.join(lines)}</header>{_links(report)}"
    )


def _links(report: AuditReport) -> str:
    """Link the parts: nobody scrolls through a thousand findings to see the picture."""
    parts = {"findings": len(report.findings), "partitions": len(report.chains), "decisions": len(report.decisions)}
    links = (f'<a href="#{name}">{name} ({count:,})</a>' for name, count in parts.items() if count)
    return f"<nav>{' '.join(links)}</nav>"


def _findings(report: AuditReport) -> str:
    if not report.findings:
        return ""
    rows = (
        (each.check, each.topic, each.partition, "–" if each.offset < 0 else each.offset, each.detail)
        for each in report.findings
    )
    heads = ("check", "topic", "partition", "offset", "what is wrong")
    return f'<section id="findings"><h2>Findings</h2>{_table("Findings", heads, rows)}</section>'


def _chains(report: AuditReport) -> str:
    if not report.chains:
        return '<section id="partitions"><h2>Partitions</h2><p>There are none.</p></section>'
    found: dict[int, list[Violation]] = defaultdict(list)
    for each in report.findings:
        found[each.partition].append(each)
    topic = names.increments_topic(report.app_id)
    heads = ("partition", "batches", "chain", "proven to", "before")
    rows = "".join(
        _row(
            escape(str(chain.partition)),
            _batches(chain),
            picture(chain, found[chain.partition], topic),
            _proven(chain, report),
            _before(chain),
        )
        for chain in report.chains
    )
    legend = "".join(f"<li>{sign(kind)} {escape(says)}</li>" for kind, says in LEGEND)
    head = "".join(f"<th>{each}</th>" for each in heads)
    table = f'<table class="chains"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<section id="partitions"><h2>Partitions</h2><ul class="legend">{legend}</ul>'
        f"{_scrolled('Partitions', table)}</section>"
    )


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{each}</td>' for each in cells)}</tr>"


def _batches(chain: AuditedChain) -> str:
    if chain.first_batch is None:
        return "none"
    claims = counted(chain.claim_count, "claim")
    return f"{chain.first_batch:,} to {chain.last_batch:,}<br><small>{claims}</small>"


def _proven(chain: AuditedChain, report: AuditReport) -> str:
    if chain.proven is None:
        return "–"
    recorded = ", recorded" if chain.recorded else ", not recorded" if report.since_last else ""
    return f"{_proof(chain.proven)}<small>{recorded}</small>"


def _before(chain: AuditedChain) -> str:
    """Tell what earlier audits had proved, and why it did not count."""
    proofs = "<br>".join(f"{_proof(p)}<br><small>{_time(p.at_ms)}</small>" for p in chain.earlier)
    because = f"<small>all was audited: {escape(chain.audited_all_because)}</small>"
    return "<br>".join(filter(None, [proofs, because if chain.audited_all_because else ""])) or "–"


def _proof(proof: Proof) -> str:
    return f"batch {proof.batch:,} <small>({escape(proof.level)})</small>"


def _counts(report: AuditReport) -> str:
    checked = _table("Checked", ("checked", "count"), _numbers(report.checked.items()))
    notes = [(name, count) for name, count in report.notes.items() if count]
    noted = _table("Notes", ("note", "count"), _numbers(notes)) if notes else "<p>No notes.</p>"
    return f'<section class="counts"><h2>What was looked at</h2>{checked}{noted}</section>'


def _numbers(counts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str]]:
    return ((name.replace("_", " "), f"{count:,}") for name, count in counts)


def _decisions(report: AuditReport) -> str:
    if not report.decisions:
        return ""
    heads = ("partition", "offset", "finding", "by", "reason", "decided")
    rows = ([getattr(each, name) for name in heads] for each in report.decisions)
    return f'<section id="decisions"><h2>Decisions</h2>{_table("Decisions", heads, rows)}</section>'


def _scrolled(label: str, table: str) -> str:
    """Let a table be wider than a phone: it scrolls within the page, by keyboard, too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}: table">{table}</div>'


def _table(label: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(_row(*(escape(str(cell)) for cell in row)) for row in rows)
    return _scrolled(label, f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# ---- the picture of a chain


def picture(chain: AuditedChain, findings: Sequence[Violation], increments_topic: str) -> str:
    """Draw the chain; `findings`: of this partition."""
    scale = _Scale(chain)
    parts = [
        *_trimmed(chain),
        *_bars(chain, scale, {_place(each, chain, increments_topic) for each in findings}),
        *_claims(chain, scale),
        *_snapshots(chain, scale),
        *_found(chain, scale, findings, increments_topic),
    ]
    label = escape(f"chain of partition {chain.partition}", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def sign(kind: str) -> str:
    """Draw one sign of the legend."""
    if kind == "snapshot":
        drawn = _flag(9, "snapshot")
    elif kind == "claim":
        drawn = '<line class="claim" x1="9" x2="9" y1="8" y2="26"/>'
    elif kind == "finding":
        drawn = '<circle class="finding" cx="9" cy="17" r="6"/>'
    else:
        drawn = f'<rect class="{kind}" x="1" y="11" width="17" height="12"/>'
    return f'<svg class="sign" viewBox="0 0 19 34" aria-hidden="true">{drawn}</svg>'


class _Scale:
    """Offsets of the increments topic → places from left to right, whole pixels."""

    def __init__(self, chain: AuditedChain) -> None:
        self._start = chain.log_start
        self._span = max(1, chain.log_end - chain.log_start)

    def __call__(self, offset: int) -> int:
        share = min(1.0, max(0.0, (offset - self._start) / self._span))
        return round(_LEFT + share * (_RIGHT - _LEFT))


def _trimmed(chain: AuditedChain) -> Iterator[str]:
    if chain.log_start > 0:
        says = f"offsets below {chain.log_start} were trimmed"
        yield _rect("trimmed", 1, _LEFT - 2, says)


def _bars(chain: AuditedChain, scale: _Scale, found_at: set[int]) -> Iterator[str]:
    """Draw one bar between two snapshots."""
    if chain.last_offset is None:
        return
    if chain.audited_from > chain.log_start:
        says = f"offsets {chain.log_start} to {chain.audited_from}: proven before, not read again"
        yield _rect("bar earlier", scale(chain.log_start), scale(chain.audited_from), says)
    edges = {each.increment_offset for each in chain.snapshots}
    inside = {e for e in edges if chain.audited_from < e < chain.last_offset}
    replayed = {each.last_offset: each.replayed for each in chain.stretches}
    for start, end in pairwise(sorted({chain.audited_from, *inside, chain.last_offset + 1})):
        kind, says = _kind(chain, start, end, replayed, found_at)
        yield _rect(f"bar {kind}", scale(start), scale(end), f"offsets {start} to {end}: {says}")


def _kind(chain: AuditedChain, start: int, end: int, replayed: dict[int, str], found_at: set[int]) -> tuple[str, str]:
    """Return the class of a bar, and what it says. A stretch ends with the batch of the next snapshot."""
    outcome = replayed.get(end) or replayed.get(end - 1)
    if outcome == "different" or any(start <= each < end for each in found_at):
        return "different", "a finding"
    if outcome == "no input":
        return "noinput", "not replayed: the input is gone"
    if chain.proven is not None and chain.proven.offset >= end - 1:
        return "proven", f"proven at level {chain.proven.level}"
    return "unproven", "read, not proven"


def _claims(chain: AuditedChain, scale: _Scale) -> Iterator[str]:
    """Draw the claims; those at one place are one line."""
    for x, offsets in _by_place(chain.claims, scale):
        says = f"{counted(len(offsets), 'claim')}, the last one at offset {offsets[-1]}"
        yield (
            f'<line class="claim" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{_BOTTOM + 5}">'
            f"<title>{escape(says)}</title></line>"
        )


def _snapshots(chain: AuditedChain, scale: _Scale) -> Iterator[str]:
    for each in chain.snapshots:
        if each.increment_offset < chain.log_start:
            continue
        kind = "snapshot" if each.is_there else "snapshot gone"
        says = f"snapshot {each.snapshot_id} of batch {each.batch}, manifest at {each.manifest_offset}"
        yield _flag(scale(each.increment_offset), kind, says)


def _found(chain: AuditedChain, scale: _Scale, findings: Sequence[Violation], increments_topic: str) -> Iterator[str]:
    places = Counter(scale(_place(each, chain, increments_topic)) for each in findings)
    for x, count in sorted(places.items()):
        shown = str(count) if count < 100 else "99+"
        yield (
            f'<g><title>{counted(count, "finding")}</title><circle class="finding" cx="{x}" cy="15" r="7"/>'
            f'<text class="count" x="{x}" y="18">{shown}</text></g>'
        )


def _place(finding: Violation, chain: AuditedChain, increments_topic: str) -> int:
    """Find the place of a finding in the increments topic. One in the snapshots topic lies at its snapshot, one
    without a record at the beginning."""
    if finding.topic == increments_topic:
        return max(finding.offset, chain.audited_from)
    for each in chain.snapshots:
        if each.first_chunk_offset <= finding.offset <= each.manifest_offset:
            return each.increment_offset
    return chain.audited_from


def _by_place(offsets: Iterable[int], scale: _Scale) -> list[tuple[int, list[int]]]:
    places: dict[int, list[int]] = {}
    for offset in offsets:
        places.setdefault(scale(offset), []).append(offset)
    return sorted(places.items())


def _rect(kind: str, x: int, end: int, says: str) -> str:
    width = max(1, end - x)
    return (
        f'<rect class="{kind}" x="{x}" y="{_TOP}" width="{width}" height="{_BAR}"><title>{escape(says)}</title></rect>'
    )


def _flag(x: int, kind: str, says: str = "") -> str:
    return f'<path class="{kind}" d="M{x} {_BOTTOM + 2} l-5 8 h10 z"><title>{escape(says)}</title></path>'
