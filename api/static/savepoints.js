// The savepoints of the app, as Kafka has them. They are read when somebody asks: Kafka has to be asked for each.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { count } from "./format.js";
import { badge, failure, instructions, moment, table } from "./parts.js";
import { get } from "./source.js";

export class Savepoints {
  told = null;
  isBusy = false;
  error = null;
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  async read() {
    Object.assign(this, { isBusy: true, error: null });
    this.#draw();
    try {
      this.told = (await get("api/v1/savepoints")).items;
    } catch (error) {
      this.error = error;
    }
    this.isBusy = false;
    this.#draw();
  }
}

export function savepoints(found, nowMs, acts) {
  const { told, isBusy, error } = found;
  return html`<section aria-labelledby="savepoints-title"><div class="head"><h2 id="savepoints-title">Savepoints</h2>
    <button type="button" ?disabled=${isBusy || !acts.isFresh} @click=${() => found.read()}>${isBusy ? "Reading …" : told ? "Read them again" : "Read them from Kafka"}</button>
    <button type="button" class="act" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.keep()}>Create a savepoint …</button></div>
    <p>The state of the app under a name, until it is dropped. To go back to one, stop the app, then ${instructions("`snapreplay reset APP --savepoint NAME`")}</p>
    ${error ? failure(error) : nothing}
    ${told ? table("Savepoints", ["Name", "State", "Kept", ["Entries", "medium"], ["By, and why", "medium"], "Action"], told.map((each) => row(each, nowMs, acts)), "None.") : nothing}</section>`;
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
