// The first five seconds: the verdict, and each thing that is wrong with what to do.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { counted, seconds, sentence } from "./format.js";
import { badge, moment, sign, ways } from "./parts.js";
import { LEVELS } from "./model.js";
import { safety, verdict } from "./verdict.js";

const QUIET = {
  loading: () => ["unknown", "Loading …", "Asking the process."],
  token: () => ["unknown", "A token is needed", "This process answers only with a token."],
  unreachable: () => ["bad", "The process cannot be reached", `${location.host} does not answer this browser: the process is down or frozen, or the network is down.`],
  refused: (line) => ["bad", "The process refuses to answer", `${sentence(line.why)}.`],
  stale: (line) => ["unknown", "No new answer", `The last one is ${seconds(line.age)} old.`],
};

const TODO = {
  unreachable: (facts) => `Look at ${facts ? `host ${facts.host}` : "its host"} and at the log of the process. Another process of the app has this page, too. The page comes back by itself.`,
};

// What is announced to a screen reader: only what changes the verdict.
export function spoken(line, all) {
  if (line.kind !== "fresh") return (QUIET[line.kind] ?? QUIET.loading)(line)[1];
  return verdict(all).headline;
}

export function band(line, all, heardAtText, nowMs) {
  if (line.kind === "fresh") return freshBand(all);
  const [level, headline, text] = (QUIET[line.kind] ?? QUIET.loading)(line);
  const todo = line.hint || TODO[line.kind]?.(all?.facts);
  return html`<header class="band ${level}">
    <h1>${sign(level)} ${headline}</h1><p>${text}</p>
    ${line.age === null && !todo ? nothing : html`<dl class="answers">
      ${line.age === null ? nothing : html`<div><dt>Since</dt><dd>${moment(heardAtText, nowMs)}, the last answer</dd></div>
      <div><dt>Is anything lost?</dt><dd>Not known from here. What was committed is in Kafka.</dd></div>`}
      ${todo ? html`<div class="wide"><dt>What to do</dt><dd>${ways(todo)}</dd></div>` : nothing}</dl>`}
    ${line.age === null ? nothing : html`<p class="asof">Everything below is as of then, and may be out of date.</p>`}
  </header>`;
}

// Of the other tabs: the verdict in a line.
export function slimBand(line, all) {
  const level = line.kind === "fresh" ? verdict(all).level : (QUIET[line.kind] ?? QUIET.loading)(line)[0];
  return html`<header class="band slim ${level}"><h1>${sign(level)} ${spoken(line, all)}</h1>${level === "good" ? nothing : html`<a href="#overview">What to do</a>`}</header>`;
}

function freshBand(all) {
  const { level, headline, summary } = verdict(all);
  const safe = safety(all);
  return html`<header class="band ${level}">
    <h1>${sign(level)} ${headline}</h1><p>${summary}</p>${safe && level === "good" ? html`<p>${safe}</p>` : nothing}
  </header>`;
}

export function problemCards(all, nowMs, { seenAt, acts }) {
  return repeat(all.problems, (each) => each.key, (each) => html`<article class="problem ${each.level}" aria-label=${each.what}>
    <h2>${badge(each.level, each.word ?? LEVELS[each.level])} ${each.what}${each.kind ? html` <small class="kind">${each.kind}</small>` : nothing}</h2>
    ${each.message ? html`<p class="message">${each.message.replace(/^[a-z]+ /, sentence)}</p>` : nothing}
    <dl class="answers">
      <div><dt>Since</dt><dd>${each.since ? moment(each.since, nowMs) : html`not known; seen here at ${moment(seenAt(each.key), nowMs)}`}</dd></div>
      <div><dt>Until</dt><dd>${each.until}</dd></div>
      <div><dt>Is anything lost?</dt><dd class="lost ${each.lost.level}">${each.lost.text}</dd></div>
      ${each.where ? html`<div><dt>Where</dt><dd>${each.where}</dd></div>` : nothing}
      <div class="wide"><dt>What to do</dt><dd>${todo(each, acts)}</dd></div>
    </dl></article>`);
}

// The button of a retry stands at the only way that has its command.
function todo({ todo: hint, note, retry: numbers }, acts) {
  const button = numbers.length ? again(numbers, acts) : nothing;
  const [its, ...others] = hint.split("; or ").filter((way) => way.includes("`snapreplay retry"));
  const isThere = its && !others.length;
  return html`${ways(hint, (way) => (isThere && way === its && numbers.length ? html`<br>${button}` : nothing))}
    ${note ? html`<p>${note}</p>` : nothing}${numbers.length && !isThere ? html`<p class="then">${button} when the cause is gone.</p>` : nothing}`;
}

function again(numbers, acts) {
  return html`<button type="button" class="act" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.retry(numbers)}>Retry
    ${numbers.length === 1 ? `partition ${numbers[0]}` : counted(numbers.length, "partition")} …</button>`;
}
