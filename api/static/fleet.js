// Partitions × processes as one picture, and the restores that run.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { ageSeconds, bytes, count, counted, lowered, placed, rate, roughly, seconds } from "./format.js";
import { badge, bar, few, moment, phaseOf, sign } from "./parts.js";
import { ANSWERING, STAGES } from "./model.js";
import { inWords } from "./until.js";

const STATES = {
  self: ["good", "answers you"], reachable: ["good", "answers"], unreachable: ["bad", "does not answer"],
  dead: ["bad", "dead"], ended: ["past", "ended"], no_address: ["warn", "no address"], wrong_address: ["bad", "wrong address"],
};

const LEGEND = [["good", "live"], ["busy", "being restored"], ["warn", "live, needs attention"], ["bad", "down"]];

export function map({ lanes, missing }, nowMs, acts, open) {
  return html`<section id="map" aria-labelledby="map-title"><h2 id="map-title">Who has what</h2>
    <ul class="legend">${LEGEND.map(([level, word]) => html`<li><span class="cell ${level}">${sign(level)}</span> ${word}</li>`)}
      <li><span class="cell copy">≈</span> warm copy (standby)</li></ul>
    <div class="lanes">${repeat(lanes, (each) => each.process.process_id, (each) => lane(each, nowMs, acts, open))}
      ${missing.length ? nobody(missing) : nothing}</div></section>`;
}

function lane({ process, isNew, owned, copies }, nowMs, acts, open) {
  const { isFresh } = acts;
  const [level, word] = isFresh ? isNew ? ["busy", "not reached yet"] : (STATES[process.state] ?? ["unknown", process.state]) : ["unknown", "not known now"];
  const old = process.age_seconds > 2 ? html` · ${seconds(process.age_seconds)} old` : nothing;
  return html`<div class="lane"><div class="who">${named(process)} ${badge(level, word)}
      <small>${process.host}${process.version ? html` · snapreplay ${process.version}` : nothing}${process.app_version ? html` · app ${process.app_version}` : nothing}${isFresh && process.started_at && level === "good" ? html` · up ${seconds((nowMs - new Date(process.started_at)) / 1000)}` : nothing}${old}</small>
      ${process.drain ? badge("warn", process.drain.state) : nothing}
      ${lacks(process)}
      ${ANSWERING.includes(process.state) ? html`<button type="button" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => (process.drain ? acts.undrain : acts.drain)(process)}
        aria-label="${process.drain ? "Undrain" : "Drain"} ${process.instance_id || process.process_id}">${process.drain ? "Undrain …" : "Drain …"}</button>` : nothing}</div>
    <ul class="cells" aria-label="Partitions of ${process.instance_id || process.process_id}">
      ${repeat(owned, (each) => each.partition, (each) => html`<li><button type="button" class="cell ${each.level}" @click=${() => open(each.partition)}
        aria-label="Partition ${each.partition}, ${phaseOf(each)}${age(each, nowMs) && ` for ${age(each, nowMs)}`}: details"
        title="partition ${each.partition}: ${phaseOf(each)}"><span>${sign(each.level)}${each.partition}</span><small>${age(each, nowMs)}</small></button></li>`)}
      ${repeat(copies, (each) => `copy ${each.partition}`, (each) => html`<li><span class="cell copy ${each.error ? "warn" : ""}" title=${copyTitle(each)}><span
        aria-hidden="true">${isWarm(each) ? "≈" : each.level === "unknown" ? "?" : "…"}${each.partition}<small>${stateOf(each)}</small></span><span class="hidden">${copyTitle(each)}</span></span></li>`)}
      ${owned.length + copies.length ? nothing : html`<li class="empty">no partition</li>`}</ul></div>`;
}

// The other pages say the same; the link is for when this one cannot be trusted.
function named(process) {
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

function nobody(missing) {
  return html`<div class="lane"><div class="who"><strong>Nobody</strong> <small>these partitions have no owner</small></div>
    <ul class="cells" aria-label="Partitions of nobody">${missing.map((each) => html`<li><span class="cell bad"><span>${sign("bad")}${each}</span></span></li>`)}</ul></div>`;
}

// ---- restores

export function restores({ partitions }, nowMs, page) {
  const busy = partitions.filter((each) => each.level === "busy");
  if (!busy.length) return nothing;
  const [shown, more] = few(busy, "restores", page);
  return html`<section id="restores" aria-labelledby="restores-title"><h2 id="restores-title">Restores</h2>
    <div class="restores">${repeat(shown, (each) => each.partition, (each) => restore(each, nowMs))}</div>${more}</section>`;
}

function restore(partition, nowMs) {
  const run = partition.restore ?? { seconds_per_phase: {}, attempts: 0 };
  const { progress } = run;
  return html`<article class="restore" aria-label="Restore of partition ${partition.partition}">
    <h3>Partition ${partition.partition} <small>${placed(partition.owner, partition.host)}${run.attempts > 1 ? html` · attempt ${run.attempts}` : nothing} · since ${moment(partition.since, nowMs)}</small></h3>
    ${stages(partition.phase, run)}
    ${bar(partition.percent ?? 0, `Restore of partition ${partition.partition}`)}
    <p class="figures">${progress ? progressText(progress) : html`${Math.round(partition.percent ?? 0)} %`}</p>
    ${partition.ending ? html`<p>Until live: ${lowered(inWords(partition.ending))}</p>` : nothing}
    ${run.waiting_for ? html`<p>Waits: ${run.waiting_for}</p>` : nothing}
    ${run.snapshot ? html`<p><small>From snapshot ${run.snapshot.snapshot_id}: ${counted(run.snapshot.entries, "entry", "entries")}, ${bytes(run.snapshot.size_bytes)}, of ${moment(run.snapshot.created_at, nowMs)}${run.mode ? html`, then by ${run.mode}` : nothing}</small></p>` : nothing}
    ${run.fallback_reason ? html`<p class="message">${run.fallback_from ? `Snapshot ${run.fallback_from} could not be used: ` : ""}${run.fallback_reason}</p>` : nothing}
  </article>`;
}


function progressText(progress) {
  const write = progress.unit === "bytes" ? bytes : count;
  const rest = progress.eta_seconds === null ? "" : ` · about ${roughly(progress.eta_seconds)} left in this stage`;
  const unit = progress.unit === "bytes" ? "" : " offsets";
  return `${write(progress.current - progress.from)} of ${write(progress.target - progress.from)}${unit} · ${rate(progress.rate_per_second, progress.unit) || "rate not known yet"}${rest}`;
}

// A restore that has failed stands at the stage that it did not complete.
export function stages(phase, { seconds_per_phase: spent, finished_at: finished = null }) {
  const isOnTheWay = STAGES.includes(phase);
  const at = isOnTheWay ? STAGES.indexOf(phase) : phase === "live" || finished ? STAGES.length : STAGES.findLastIndex((name) => spent[name] !== undefined);
  return html`<ol class="stages">${STAGES.map((name, index) => html`<li class=${index < at ? "done" : index === at ? (isOnTheWay ? "now" : "failed") : ""} aria-current=${index === at ? "step" : "false"}>
    ${name}${spent[name] === undefined ? nothing : html` <small>${spent[name] < 0.05 ? "<0.1 s" : seconds(spent[name])}</small>`}</li>`)}</ol>`;
}
