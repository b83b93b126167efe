// Small parts of the picture, which several sections use.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { ago, clock, count, sentence, utc, visible } from "./format.js";

const GLYPHS = { good: "✓", busy: "↻", warn: "!", bad: "✕", unknown: "?", past: "–" };

export const sign = (level) => html`<span class="sign ${level}" aria-hidden="true">${GLYPHS[level]}</span>`;

export const badge = (level, word) => html`<span class="badge ${level}">${sign(level)} ${word}</span>`;

// The process that says something. Several may be on one host.
export function nameOf({ process_id: id, host }, lanes) {
  const found = lanes.find(({ process }) => process.process_id === id)?.process;
  return found?.instance_id || host;
}

// A time of the process's clock, and how long ago that was.
export function moment(text, nowMs, withAge = true) {
  if (!text) return "–";
  return html`<time datetime=${text} title=${utc(text)}>${clock(text, nowMs)}</time>${withAge ? html` <small>${ago(text, nowMs)}</small>` : nothing}`;
}

// Commands that ask a process which runs: they are shown and copied with the address of this page.
const ASKING = [
  "restore-status", "plan", "lag", "get", "scan", "trigger-snapshot", "adopt", "retry", "pause", "resume",
  "drill", "processes", "operations", "snapshots", "history", "cancel", "drain", "undrain",
  "health",
];
const ADDRESS = new URL(".", location.href).href.replace(/\/$/, "");
const HERE = /^[\w:/.-]+$/.test(ADDRESS) ? ADDRESS : `'${ADDRESS.replaceAll("'", "%27")}'`;

function whole(command) {
  const [program, name] = command.split(" ");
  if (program !== "snapreplay" || !ASKING.includes(name)) return command;
  return command.includes(" --url ") ? command.replace("--url URL", () => `--url ${HERE}`) : `${command} --url ${HERE}`;
}

// A key or a value as the app has stored it, with any content.
export const stored = (text) => (text === "" ? html`<em>empty</em>` : html`<code>${visible(text)}</code>`);

// The text of a hint, with its commands as code and a button that copies each. A setting alone is no command, and neither is Python.
export function instructions(text) {
  return text.split(/(`[^`]+`)/).map((part) => {
    if (!part.startsWith("`")) return part;
    const command = whole(part.slice(1, -1));
    if (command.startsWith("--set ")) return html`<code>${command}</code> <small>(added to the command that starts the process, or without --set in its settings file)</small>`;
    // A word of it is not divided at its hyphens.
    return html`<code>${command.split(" ").map((each, at) => html`${at ? " " : ""}<span>${each}</span>`)}</code>${/^[a-z][\w./-]* /.test(command) ? html`<button class="copy" type="button" data-copy=${command} aria-label="Copy: ${command}">copy</button>` : nothing}`;
  });
}

// A hint, each of its ways by itself. `below(way)`: what belongs to it.
export function ways(hint, below = () => nothing) {
  const found = hint.split("; or ").map((way) => html`${instructions(sentence(way))} ${below(way)}`);
  return found.length === 1 ? html`<p>${found}</p>` : html`<ul class="ways">${found.map((way) => html`<li>${way}</li>`)}</ul>`;
}

// What was refused or not answered, and what to do.
export const failure = (error) => html`<div class="message" role="alert"><p>${sentence(error.message)}</p>${error.hint ? html`<p>${instructions(error.hint)}</p>` : nothing}</div>`;

// A head is a word, or a word and how wide a screen must be to show its column.
const word = (head) => (Array.isArray(head) ? head[0] : head);
const kind = (head) => (Array.isArray(head) ? head[1] : "");

export function table(label, heads, rows, empty) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${label}: table">
    <table><thead><tr>${heads.map((each) => html`<th scope="col" class=${kind(each)}>${word(each)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, index) => html`<td class=${kind(heads[index])}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

const FEW = 8;

// The first rows, or all, and the button between the two; `name`: what they are.
export function few(rows, name, page) {
  if (rows.length <= FEW) return [rows, nothing];
  const isWhole = page.whole.has(name);
  const button = html`<button type="button" class="more" @click=${() => page.toggleWhole(name)}>${isWhole ? "Show fewer" : `Show all ${count(rows.length)} ${name}`}</button>`;
  return [isWhole ? rows : rows.slice(0, FEW), button];
}

// Of a decision: its finding, what was decided, by whom and why.
export const decided = (each) => [each.finding, html`${each.problem}<br><small>${each.decided}</small>`, html`${each.by}<br><small class="free">${each.reason}</small>`];

// What a process that does not answer said last is no knowledge.
export function phaseOf({ level, phase, paused_since: paused }) {
  const word = phase === "live" && paused ? "paused" : phase;
  return level !== "unknown" ? word : word ? `was ${word}` : "not known";
}

export const bar = (percent, label) =>
  html`<progress max="100" .value=${percent} aria-label=${label}>${Math.round(percent)} %</progress>`;

// Its id is not the address of a tab: a browser would take the focus there.
export const section = (id, name, more, body) =>
  html`<section aria-labelledby="${id}-title"><div class="head"><h2 id="${id}-title">${name}</h2>${more}</div>${body}</section>`;

export const STATE_LEVELS = { pointed: "good", succeeded: "good", running: "busy", writing: "busy", written: "busy", pending: "busy", skipped: "past", cancelled: "past", failed: "bad" };

export const fromProcess = (each, lanes) => (each.process_id && lanes.length > 1 ? html` <small>${nameOf(each, lanes)}</small>` : nothing);
