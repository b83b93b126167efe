// The dead letters: each with its reason and its record, and the way back to the inputs.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { count, counted, sentence } from "./format.js";
import { badge, failure, few, instructions, moment, section, stored } from "./parts.js";
import { Reading, exact } from "./source.js";
import { tree } from "./tree.js";

const LISTED = 100; // so many the process lists at most
const PAUSE_MS = 10_000; // until they are read again after a failure

export class Letters extends Reading {
  #as = null; // what was known of dead letters when they were read: if it has changed, they are read again
  #now = null;

  constructor(draw) {
    super("api/v1/dead-letters", draw);
  }

  async look({ partitions, answer }) {
    const redrives = answer.operations.items.filter((each) => each.kind === "redrive").map((each) => each.state);
    this.#now = JSON.stringify([partitions.reduce((sum, each) => sum + each.skipped_total, 0), redrives]);
    const isDue = this.error ? performance.now() - this.failedAt > PAUSE_MS : this.#now !== this.#as;
    if (isDue && !this.isBusy) await this.read();
  }

  read() {
    this.#as = this.#now;
    return super.read();
  }
}

export function letters(all, nowMs, page) {
  if (page.isFresh) page.letters.look(all);
  const { answer, error, isBusy } = page.letters;
  const again = html`<button type="button" ?disabled=${!page.isFresh || isBusy} @click=${() => page.letters.read()}>Read again</button>`;
  const act = html`<button type="button" class="act" title=${page.acts.whyOff("operator")} ?disabled=${page.acts.isOff("operator")} @click=${() => page.acts.redrive()}>Redrive …</button>`;
  return section("dead-letters", "Dead letters", html`${answer || error ? again : nothing}${answer?.topic ? act : nothing}`, html`${error ? failure(error) : nothing}${answer ? list(answer, nowMs, page) : error ? nothing : html`<p class="empty">Reading them from Kafka …</p>`}`);
}

function list({ topic, items }, nowMs, page) {
  if (!topic) return html`<p>A record that a handler cannot process stops its partition. To set such records aside, ${instructions("`snapreplay topics ensure APP --set errors.policy=dead_letter`")}, and start the processes with that setting.</p>`;
  if (!items.length) return html`<p class="empty">None. Every record was processed.</p>`;
  const [shown, more] = few(items, "dead letters", page);
  return html`<p>${summary(topic, items)}</p>
    <div class="letters">${repeat(shown, (each) => `${each.partition} ${each.offset}`, (each) => letter(each, nowMs))}</div>${more}`;
}

function summary(topic, items) {
  const of = (state) => items.filter((each) => each.state === state).length;
  const [open, left] = [of("open"), of("passed_over")];
  const among = items.length >= LISTED ? ` of the newest ${LISTED}` : "";
  const passed = left ? ` ${count(left)}${open ? "" : among} ${left === 1 ? "was" : "were"} skipped.` : "";
  if (open) return html`${counted(open, "dead letter")}${among} in <code>${topic}</code> ${open === 1 ? "is" : "are"} open. Deploy a fixed handler, then redrive.${passed}`;
  if (among) return html`None of the newest ${LISTED} in <code>${topic}</code> is open. Older ones are not shown.${passed}`;
  return left ? html`None in <code>${topic}</code> is open.${passed}` : "All records were sent back.";
}

function fate({ state, passed_over: why }) {
  if (state === "open") return badge("warn", "open");
  return state === "sent_back" ? badge("past", "sent back") : badge("past", `skipped: ${why}`);
}

function letter(each, nowMs) {
  const place = each.timer ? `timer ${each.timer}` : `${each.topic}-${each.input_partition}-${each.input_offset}`;
  return html`<article class="letter" aria-label="Dead letter of ${place}">
    <h3>${fate(each)} ${each.exception} <small>${place} · ${moment(each.written_at, nowMs)} · app ${each.app_version}</small></h3>
    <p class="message">${sentence(each.message.startsWith(`${place}: `) ? each.message.slice(place.length + 2) : each.message)}</p>
    <details><summary>Record</summary><dl class="record">
      <div><dt>Key</dt><dd>${each.key === null ? "null" : stored(each.key)}</dd></div>
      <div><dt>Value</dt><dd>${value(each)}</dd></div>
      ${Object.entries(each.headers).map(([name, text]) => html`<div><dt>Header ${name}</dt><dd>${stored(text)}</dd></div>`)}
      ${each.headers_left_out ? html`<div><dt>Headers</dt><dd>${count(each.headers_left_out)} more</dd></div>` : nothing}</dl></details></article>`;
}

// By letter: a value is parsed once.
const values = new WeakMap();

function value(each) {
  if (!values.has(each)) values.set(each, read(each));
  return values.get(each);
}

function read({ value: text, value_is_cut: isCut, dropped }) {
  if (text === null) return dropped ? `It did not fit into the dead letter: ${dropped}. The input has it.` : "null";
  if (isCut) return html`<small>Its first ${count([...text].length)} characters:</small> ${stored(text)}`;
  try {
    return tree(JSON.parse(text, exact));
  } catch {
    return stored(text);
  }
}
