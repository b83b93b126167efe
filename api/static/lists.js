// Snapshots, operations and decisions: what happened, newest first.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { bytes, count, counted, seconds } from "./format.js";
import { named } from "./model.js";
import { badge, decided, few, moment, nameOf, table } from "./parts.js";

const from = (each, lanes) => (each.process_id && lanes.length > 1 ? html` <small>${nameOf(each, lanes)}</small>` : nothing);

const LEVELS = { pointed: "good", succeeded: "good", running: "busy", writing: "busy", written: "busy", pending: "busy", skipped: "past", cancelled: "past", failed: "bad" };
const CANCELLABLE = ["snapshot", "retry", "drill", "drain", "savepoint"];

export function lists(all, nowMs, page) {
  return html`<div class="pair">${snapshots(all, nowMs, page)}${operations(all, nowMs, page)}</div>
    ${decisions(all, nowMs)}
    ${group(all, nowMs, page)}`;
}

function section(id, name, more, body) {
  return html`<section id=${id} aria-labelledby="${id}-title"><div class="head"><h2 id="${id}-title">${name}</h2>${more}</div>${body}</section>`;
}

function snapshots({ told, facts, lanes }, nowMs, page) {
  const [items, more] = few(told.snapshots.items, "snapshots", page);
  const rows = items.map((each) => [
    html`${each.partition}${from(each, lanes)}`, badge(LEVELS[each.state] ?? "unknown", each.state), html`${each.reason}${each.error ? html`<br><span class="message">${each.error}</span>` : nothing}`,
    html`${count(each.entries)} <small>${bytes(each.size_bytes)}</small>`, moment(each.started_at, nowMs),
    each.finished_at && each.reason !== "restored" ? seconds((new Date(each.finished_at) - new Date(each.started_at)) / 1000) : "–",
  ]);
  const act = html`<button type="button" class="act" title=${page.acts.whyOff("operator")} ?disabled=${page.acts.isOff("operator")} @click=${() => page.acts.snapshot(null)}>Write snapshots …</button>`;
  return section("snapshots", "Snapshots", act, html`${table("Snapshots", ["Partition", "State", "Why", ["Entries", "medium"], "Begun", ["Took", "medium"]], rows, `None was written or used since ${facts.host} started.`)}${more}`);
}

function operations({ told, lanes }, nowMs, page) {
  const [items, more] = few(told.operations.items, "operations", page);
  const rows = items.map((each) => [
    html`${each.kind}${from(each, lanes)}<br>${moment(each.created_at, nowMs)}`, badge(LEVELS[each.state] ?? "unknown", each.state),
    html`${each.reason ? html`<span class="free">${each.reason}</span><br>` : nothing}<small>${outcomes(each.parts)}</small>${cancel(each, page.acts)}`,
  ]);
  return section("operations", "Operations", nothing, html`${table("Operations", ["What", "State", "Of"], rows, "None since the process started.")}${more}`);
}

function cancel(each, acts) {
  if (!CANCELLABLE.includes(each.kind) || !each.parts.some((part) => part.state === "pending")) return nothing;
  return html`<br><button type="button" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.cancel(each)}>Cancel the ${each.kind} …</button>`;
}

// Partitions by what became of them, with the first detail.
function outcomes(parts) {
  const states = [...new Set(parts.map((each) => each.state))];
  return states.map((state) => {
    const those = parts.filter((each) => each.state === state);
    const detail = those.find((each) => each.detail)?.detail;
    return html`<span class="outcome">${named(those.map((each) => each.partition))}: ${state}${detail ? ` (${detail})` : ""}</span>`;
  });
}

function decisions({ partitions }, nowMs) {
  const found = partitions.flatMap((p) => p.decisions.map((each) => ({ ...each, partition: p.partition }))).sort((a, b) => (a.at < b.at ? 1 : -1));
  const rows = found.map((each) => [each.partition, ...decided(each), moment(each.at, nowMs)]);
  return section("decisions", "Decisions", nothing, table("Decisions", ["Partition", "Finding", "What was decided", "By, and why", "At"], rows, "None. No loss was accepted, and no state was changed by hand."));
}

const WENT = [["joined", "good", "joined"], ["left", "past", "left"], ["expelled", "bad", "expelled"], ["gone", "warn", "gone"], ["absent", "warn", "absent"]];

function group({ told, facts }, nowMs, page) {
  const changes = told.group.items[0]?.changes ?? [];
  const [items, more] = few(changes, "generations", page);
  const rows = items.map((each) => [
    moment(each.at, nowMs), count(each.generation), count(each.members), happened(each), each.partitions.length ? named(each.partitions) : "none",
  ]);
  return section("group", "Group", nothing, html`<p>Who joined and who went, as ${facts.instance_id} has seen it.</p>
    ${table("Group", ["At", ["Generation", "medium"], ["Members", "medium"], "What changed", [`Given to ${facts.instance_id}`, "medium"]], rows, "This process has not been a member of the group yet.")}${more}`);
}

function happened(change) {
  const words = WENT.flatMap(([field, level, word]) => change[field].map((who) => html`<span class="outcome">${badge(level, word)} ${who.instance_id || who.process_id} <small>${who.host}</small></span>`));
  if (change.is_anew) words.push(html`<span class="outcome">${badge("warn", "anew")} this process was out of the group before</span>`);
  return words.length ? words : "the same members";
}
