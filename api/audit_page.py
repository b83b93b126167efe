"""The report of an audit as one self-contained page: no script, no font, no image from elsewhere. Pure.

Everything that comes from the topics is escaped: keys and values may hold anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from snapreplay.api.audit_picture import LEGEND, picture, sign
from snapreplay.app import names
from snapreplay.counted import counted
from snapreplay.snapshots.proof.proven import Proof
from snapreplay.snapshots.proof.report import AuditedChain, AuditReport, Violation

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: AuditReport) -> str:
    """Write a whole HTML document."""
    style = (files(__package__) / "audit_page.css").read_text(encoding="utf-8")
    title = escape(f"Audit of {report.app_id}: {verdict(report)}")
    body = "\n".join(
        (_head(report), _findings(report), _chains(report), _counts(report), _decisions(report))
    )
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
    facts = [
        f"level {report.level}",
        counted(report.partition_count, "partition"),
        f"{report.seconds:.1f} s",
    ]
    if report.audited_at_ms:
        facts.insert(0, _time(report.audited_at_ms))
    if report.since_last:
        facts.append("since the last proof")
    lines = [f"<p>{escape(' · '.join(facts))}</p>"]
    if report.not_recorded:
        lines.append(
            f"<p><strong>The proof was not recorded:</strong> {escape(report.not_recorded)}</p>"
        )
    return (
        f'<header class="{kind}"><p class="app">{escape(report.app_id)}</p>'
        f"<h1>{escape(verdict(report).capitalize())}</h1>{''.join(lines)}</header>{_links(report)}"
    )


def _links(report: AuditReport) -> str:
    """Link the parts: nobody scrolls through a thousand findings to see the picture."""
    parts = {
        "findings": len(report.findings),
        "partitions": len(report.chains),
        "decisions": len(report.decisions),
    }
    links = (f'<a href="#{name}">{name} ({count:,})</a>' for name, count in parts.items() if count)
    return f"<nav>{' '.join(links)}</nav>"


def _findings(report: AuditReport) -> str:
    if not report.findings:
        return ""
    rows = (
        (each.check, each.topic, each.partition, _offset(each.offset), each.detail)
        for each in report.findings
    )
    heads = ("check", "topic", "partition", "offset", "what is wrong")
    return f'<section id="findings"><h2>Findings</h2>{_table(heads, rows)}</section>'


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
    return (
        f'<section id="partitions"><h2>Partitions</h2><ul class="legend">{legend}</ul>'
        f'<table class="chains"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></section>'
    )


def _row(*cells: str) -> str:
    """Write a row of HTML."""
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
    checked = _table(("checked", "count"), _numbers(report.checked.items()))
    notes = [(name, count) for name, count in report.notes.items() if count]
    noted = _table(("note", "count"), _numbers(notes)) if notes else "<p>No notes.</p>"
    return f'<section class="counts"><h2>What was looked at</h2>{checked}{noted}</section>'


def _numbers(counts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str]]:
    return ((name.replace("_", " "), f"{count:,}") for name, count in counts)


def _decisions(report: AuditReport) -> str:
    if not report.decisions:
        return ""
    heads = ("partition", "offset", "finding", "by", "reason", "decided")
    rows = ([getattr(each, name) for name in heads] for each in report.decisions)
    return f'<section id="decisions"><h2>Decisions</h2>{_table(heads, rows)}</section>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(_row(*(escape(str(cell)) for cell in row)) for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _offset(offset: int) -> str:
    return "–" if offset < 0 else str(offset)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
