// The full snapshots that processes wrote or used, newest first; and the savepoints, which are read when somebody asks:
// Kafka has to be asked for each.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { bytes, count, seconds } from "./format.js";
import { STATE_LEVELS, badge, failure, few, fromProcess, instructions, moment, section, table } from "./parts.js";

export function snapshots(all, nowMs, page) {
  return html`${list(all, nowMs, page)}${savepoints(page.kept, nowMs, page.acts)}`;
}

function list({ answer, facts, lanes }, nowMs, page) {
  const [items, more] = few(answer.snapshots.items, "snapshots", page);
  const rows = items.map((each) => [
    html`${each.partition}${fromProcess(each, lanes)}`, badge(STATE_LEVELS[each.state] ?? "unknown", each.state === "pointed" ? "in use" : each.state), html`${each.reason}${each.error ? html`<br><span class="message">${each.error}</span>` : nothing}`,
    count(each.entries), bytes(each.size_bytes), moment(each.started_at, nowMs),
    each.finished_at && each.reason !== "restored" ? seconds((new Date(each.finished_at) - new Date(each.started_at)) / 1000) : "–",
  ]);
  const act = html`<button type="button" class="act" title=${page.acts.whyOff("operator")} ?disabled=${page.acts.isOff("operator")} @click=${() => page.acts.snapshot(null)}>Write snapshots …</button>`;
  return section("snapshots", "Snapshots", act, html`${table("Snapshots", ["Partition", "State", "Reason", ["Entries", "number medium"], ["Size", "number medium"], "Begun", ["Took", "number medium"]], rows, `None was written or used since ${facts.host} started.`)}${more}`);
}

function savepoints(found, nowMs, acts) {
  const { answer, isBusy, error } = found;
  return html`<section aria-labelledby="savepoints-title"><div class="head"><h2 id="savepoints-title">Savepoints</h2>
    <button type="button" ?disabled=${isBusy || !acts.isFresh} @click=${() => found.read()}>${isBusy ? "Reading …" : answer ? "Read them again" : "Read them from Kafka"}</button>
    <button type="button" class="act" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.keep()}>Create a savepoint …</button></div>
    <p>The state of the app under a name, until it is dropped. To go back to one, stop the app, then ${instructions("`snapreplay reset APP --savepoint NAME`")}</p>
    ${error ? failure(error) : nothing}
    ${answer ? table("Savepoints", ["Name", "State", "Kept", ["Entries", "medium"], ["By, and why", "medium"], "Action"], answer.items.map((each) => row(each, nowMs, acts)), "None.") : nothing}</section>`;
}

function row(each, nowMs, acts) {
  const kept = each.partitions.map((part) => part.kept_at).filter(Boolean).sort().at(-1);
  const problem = each.partitions.find((part) => part.problem);
  return [
    each.savepoint,
    html`${badge(each.usable ? "good" : "bad", each.usable ? "usable" : "not usable")}${problem ? html`<br><span class="message">Partition ${problem.partition}: ${problem.problem}</span>` : nothing}`,
    moment(kept, nowMs), count(each.partitions.reduce((sum, part) => sum + (part.entries ?? 0), 0)),
    html`${each.by ?? "–"}<br><small class="free">${each.reason}</small>`,
    html`<button type="button" title=${acts.whyOff("admin")} ?disabled=${acts.isOff("admin")} @click=${() => acts.drop(each.savepoint)} aria-label="Drop ${each.savepoint}">Drop …</button>`,
  ];
}
