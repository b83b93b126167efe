// The dead letters: each with its reason and its record, and the way back to the inputs.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { counted, sentence } from "./format.js";
import { badge, failure, few, instructions, moment, section, stored } from "./parts.js";
import { get } from "./source.js";
import { tree } from "./tree.js";

const LISTED = 100; // so many the process lists at most

export class Letters {
  told = null;
  isBusy = false;
  error = null;
  #as = null; // what was known of dead letters when they were read: if it has changed, they are read again
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  async look({ partitions, told }) {
    const redrives = told.operations.items.filter((each) => each.kind === "redrive").map((each) => each.state);
    const as = JSON.stringify([partitions.reduce((sum, each) => sum + each.skipped_total, 0), redrives]);
    if (this.isBusy || as === this.#as) return;
    this.#as = as;
    await this.read();
  }

  async read() {
    Object.assign(this, { isBusy: true, error: null });
    try {
      this.told = await get("api/v1/dead-letters");
    } catch (error) {
      this.error = error;
    }
    this.isBusy = false;
    this.#draw();
  }
}

export function letters(all, nowMs, page) {
  const { told, error } = page.letters;
  if (page.isFresh) page.letters.look(all);
  const waiting = (told?.items ?? []).filter((each) => !each.redriven && !each.timer);
  const act = html`<button type="button" class="act" title=${page.acts.whyOff("operator")} ?disabled=${page.acts.isOff("operator") || !waiting.length} @click=${() => page.acts.redrive()}>Redrive …</button>`;
  return section("dead-letters", "Dead letters", told?.topic ? act : nothing, html`${error ? failure(error) : nothing}${told ? list(told, waiting, nowMs, page) : error ? nothing : html`<p class="empty">Reading them from Kafka …</p>`}`);
}

function list({ topic, items }, waiting, nowMs, page) {
  if (!topic) return html`<p>A record that a handler cannot process stops its partition. To set such records aside, ${instructions("`snapreplay topics ensure APP --set errors.policy=dead_letter`")}, and start the processes with that setting.</p>`;
  if (!items.length) return html`<p class="empty">None. Every record was processed.</p>`;
  const [shown, more] = few(items, "dead letters", page);
  const first = items.length === LISTED ? ` of the newest ${LISTED}` : "";
  return html`<p>${waiting.length ? html`${counted(waiting.length, "record")}${first} in <code>${topic}</code> ${waiting.length === 1 ? "was" : "were"} not sent back yet. Deploy a fixed handler, then redrive.` : "All records were sent back."}</p>
    <div class="letters">${repeat(shown, (each) => `${each.partition} ${each.offset}`, (each) => letter(each, nowMs))}</div>${more}`;
}

function letter(each, nowMs) {
  const place = each.timer ? `timer ${each.timer}` : `${each.topic}-${each.input_partition}-${each.input_offset}`;
  return html`<article class="letter" aria-label="Dead letter of ${place}">
    <h3>${each.redriven ? badge("past", "sent back") : badge("warn", "not sent back")} ${each.exception} <small>${place} · ${moment(each.written_at, nowMs)} · app ${each.app_version}</small></h3>
    <p class="message">${sentence(each.message.startsWith(`${place}: `) ? each.message.slice(place.length + 2) : each.message)}</p>
    <details><summary>Record</summary><dl class="record">
      <div><dt>Key</dt><dd>${each.key === null ? "null" : stored(each.key)}</dd></div>
      <div><dt>Value</dt><dd>${value(each)}</dd></div>
      ${Object.entries(each.headers).map(([name, text]) => html`<div><dt>Header ${name}</dt><dd>${stored(text)}</dd></div>`)}</dl></details></article>`;
}

function value({ value: text, dropped }) {
  if (text === null) return dropped ? `It did not fit into the dead letter: ${dropped}. The input has it.` : "null";
  try {
    return tree(JSON.parse(text));
  } catch {
    return stored(text);
  }
}
