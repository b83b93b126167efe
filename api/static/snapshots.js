// The full snapshots that processes wrote or used, newest first, and the savepoints.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { bytes, count, seconds } from "./format.js";
import { STATE_LEVELS, badge, few, fromProcess, moment, section, table } from "./parts.js";
import { savepoints } from "./savepoints.js";

export function snapshots(all, nowMs, page) {
  return html`${written(all, nowMs, page)}${savepoints(page.kept, nowMs, page.acts)}`;
}

function written({ told, facts, lanes }, nowMs, page) {
  const [items, more] = few(told.snapshots.items, "snapshots", page);
  const rows = items.map((each) => [
    html`${each.partition}${fromProcess(each, lanes)}`, badge(STATE_LEVELS[each.state] ?? "unknown", each.state === "pointed" ? "in use" : each.state), html`${each.reason}${each.error ? html`<br><span class="message">${each.error}</span>` : nothing}`,
    count(each.entries), bytes(each.size_bytes), moment(each.started_at, nowMs),
    each.finished_at && each.reason !== "restored" ? seconds((new Date(each.finished_at) - new Date(each.started_at)) / 1000) : "–",
  ]);
  const act = html`<button type="button" class="act" title=${page.acts.whyOff("operator")} ?disabled=${page.acts.isOff("operator")} @click=${() => page.acts.snapshot(null)}>Write snapshots …</button>`;
  return section("snapshots", "Snapshots", act, html`${table("Snapshots", ["Partition", "State", "Reason", ["Entries", "number medium"], ["Size", "number medium"], "Begun", ["Took", "number medium"]], rows, `None was written or used since ${facts.host} started.`)}${more}`);
}
