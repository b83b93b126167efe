// Small parts of the picture, which several sections use.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { ago, clock, utc } from "./format.js";

const GLYPHS = { good: "✓", busy: "↻", warn: "!", bad: "✕", unknown: "?" };

export const sign = (level) => html`<span class="sign ${level}" aria-hidden="true">${GLYPHS[level]}</span>`;

export const badge = (level, word) => html`<span class="badge ${level}">${sign(level)} ${word}</span>`;

// A time of the process's clock, and how long ago that was.
export function moment(text, nowMs, withAge = true) {
  if (!text) return "–";
  return html`<time datetime=${text} title=${utc(text)}>${clock(text, nowMs)}</time>${withAge ? html` <small>${ago(text, nowMs)}</small>` : nothing}`;
}

// The text of a hint, with its commands as code and a button that copies each.
export function instructions(text) {
  return text.split(/(`[^`]+`)/).map((part) => {
    if (!part.startsWith("`")) return part;
    const command = part.slice(1, -1);
    return html`<code>${command}</code>${command.includes(" ") ? html`<button class="copy" type="button" data-copy=${command} aria-label="Copy: ${command}">copy</button>` : nothing}`;
  });
}

// A head is a word, or a word and how wide a screen must be to show its column.
const word = (head) => (Array.isArray(head) ? head[0] : head);
const kind = (head) => (Array.isArray(head) ? head[1] : "");

export function table(label, heads, rows, empty) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${label}: table">
    <table><thead><tr>${heads.map((each) => html`<th scope="col" class=${kind(each)}>${word(each)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, index) => html`<td class=${kind(heads[index])}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

// What a process that does not answer said last is no knowledge.
export function phaseOf({ level, phase, paused_since: paused }) {
  const word = phase === "live" && paused ? "paused" : phase;
  return level !== "unknown" ? word : word ? `was ${word}` : "not known";
}

export const bar = (percent, label) =>
  html`<progress max="100" .value=${percent} aria-label=${label}>${Math.round(percent)} %</progress>`;
