// The processes of the app, each with its partitions and its warm copies.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { ageSeconds, counted, roughly, seconds } from "./format.js";
import { ANSWERING } from "./model.js";
import { badge, phaseOf, sign } from "./parts.js";
import { href } from "./routes.js";

const STATES = {
  self: ["good", "this process"], reachable: ["good", "answers"], unreachable: ["bad", "does not answer"],
  dead: ["bad", "dead"], ended: ["past", "ended"], no_address: ["warn", "no address"], wrong_address: ["bad", "wrong address"],
};

const LEGEND = [["good", "live"], ["busy", "being restored"], ["warn", "live, needs attention"], ["bad", "down"]];

export function processes({ lanes, missing }, nowMs, acts) {
  return html`<section aria-labelledby="processes-title"><h2 id="processes-title">Processes</h2>
    <ul class="legend">${LEGEND.map(([level, word]) => html`<li><span class="cell ${level}">${sign(level)}</span> ${word}</li>`)}
      <li><span class="cell copy">≈</span> warm copy (standby)</li></ul>
    <div class="lanes">${repeat(lanes, (each) => each.process.process_id, (each) => lane(each, nowMs, acts))}
      ${missing.length ? ownerless(missing) : nothing}</div></section>`;
}

function lane({ process, isNew, owned, copies }, nowMs, acts) {
  const { isFresh } = acts;
  const [level, word] = isFresh ? isNew ? ["busy", "not reached yet"] : (STATES[process.state] ?? ["unknown", process.state]) : ["unknown", "not known now"];
  const old = process.age_seconds > 2 ? html` · ${seconds(process.age_seconds)} old` : nothing;
  return html`<div class="lane" data-lane><div class="who"><p>${nameOf(process)} ${badge(level, word)}</p>
      <small>${process.host}${process.version ? html` · snapreplay ${process.version}` : nothing}${process.app_version ? html` · app ${process.app_version}` : nothing}${isFresh && process.started_at && level === "good" ? html` · up ${seconds((nowMs - new Date(process.started_at)) / 1000)}` : nothing}${old}</small>
      ${process.drain ? badge("warn", process.drain.state) : nothing}
      ${lacks(process)}</div>
    <ul class="cells" aria-label="Partitions of ${process.instance_id || process.process_id}">
      ${repeat(owned, (each) => each.partition, (each) => html`<li><a class="cell ${each.level}" data-moves=${each.partition} href=${href("partitions", each.partition)}
        aria-label="Partition ${each.partition}, ${phaseOf(each)}${age(each, nowMs) && ` for ${age(each, nowMs)}`}: details"
        title="partition ${each.partition}: ${phaseOf(each)}"><span>${sign(each.level)}${each.partition}</span><small>${age(each, nowMs)}</small></a></li>`)}
      ${repeat(copies, (each) => `copy ${each.partition}`, (each) => html`<li><span class="cell copy ${each.error ? "warn" : ""}" title=${copyTitle(each)}><span
        aria-hidden="true">${isWarm(each) ? "≈" : each.level === "unknown" ? "?" : "…"}${each.partition}<small>${stateOf(each)}</small></span><span class="hidden">${copyTitle(each)}</span></span></li>`)}
      ${owned.length + copies.length ? nothing : html`<li class="empty">no partition</li>`}</ul>
    ${drain(process, acts)}</div>`;
}

function drain(process, acts) {
  if (!ANSWERING.includes(process.state)) return nothing;
  const word = process.drain ? "Undrain" : "Drain";
  return html`<button type="button" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => (process.drain ? acts.undrain(process) : acts.drain(process))}
    aria-label="${word} ${process.instance_id || process.process_id}">${word} …</button>`;
}

// The other pages say the same; the link is for when this one cannot be trusted.
function nameOf(process) {
  const name = html`<strong>${process.instance_id || process.process_id}</strong>`;
  return process.url && process.state === "reachable" ? html`<a href=${process.url}>${name}</a>` : name;
}

// A process without partitions has nothing that could be copied.
function lacks({ copies, partitions }) {
  if (!copies || !partitions.length) return nothing;
  const { given, wanted, why_missing: missing, why_on_owners_rack: rack, on_owners_rack: there } = copies;
  return html`${missing ? html`${badge("warn", `${given} of ${counted(wanted, "copy", "copies")} of each`)} <small>${missing}</small>` : nothing}
    ${rack ? html`${badge("warn", `${counted(there, "partition")} with all copies on its rack`)} <small>${rack}</small>` : nothing}`;
}

// How long it has been so. Of what a silent process said last, that is not known.
function age({ level, since, paused_since: paused }, nowMs) {
  const began = paused ?? since;
  return level === "unknown" || !began ? "" : roughly(ageSeconds(began, nowMs));
}

export const stateOf = ({ level, state }) => (level === "unknown" ? `was ${state}` : state);
const isWarm = (each) => stateOf(each) === "warm";

const copyTitle = (each) =>
  `copy of partition ${each.partition}: ${stateOf(each)}, ${counted(each.lag_offsets, "offset")} behind, ${counted(each.digests_compared ?? 0, "digest")} equal${each.error ? `, ${each.error.message}` : ""}`;

function ownerless(missing) {
  return html`<div class="lane" data-lane><div class="who"><strong>No owner</strong> <small>until another process takes them over</small></div>
    <ul class="cells" aria-label="Partitions without owner">${missing.map((each) => html`<li><span class="cell bad" data-moves=${each}><span>${sign("bad")}${each}</span></span></li>`)}</ul></div>`;
}
