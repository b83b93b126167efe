// The restores that run, and for a moment those that have just ended: their stages, their pace, and the proof.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { bytes, count, counted, lowered, placed, rate, roughly, seconds } from "./format.js";
import { badge, bar, few, moment } from "./parts.js";
import { STAGES } from "./model.js";
import { href } from "./routes.js";
import { inWords } from "./until.js";

const ENDED_MS = 30_000; // for so long a restore that this page has seen running is shown after its end

export class Watch {
  #endedAt = new Map(); // partition that was being restored → when it was live; null: it is not

  look({ partitions }) {
    for (const { partition, level, phase } of partitions) {
      if (level === "busy") this.#endedAt.set(partition, null);
      else if (this.#endedAt.get(partition) === null) {
        if (phase === "live") this.#endedAt.set(partition, performance.now());
        else this.#endedAt.delete(partition);
      }
    }
  }

  shown({ partitions }) {
    const isRecent = (each) => performance.now() - (this.#endedAt.get(each.partition) ?? -Infinity) < ENDED_MS;
    return partitions.filter((each) => each.level === "busy" || (each.phase === "live" && isRecent(each)));
  }
}

export function restores(partitions, nowMs, page) {
  if (!partitions.length) return nothing;
  const [shown, more] = few(partitions, "restores", page);
  return html`<section aria-labelledby="restores-title"><h2 id="restores-title">Restores</h2>
    <div class="restores">${repeat(shown, (each) => each.partition, (each) => restore(each, nowMs))}</div>${more}</section>`;
}

function restore(partition, nowMs) {
  const run = partition.restore ?? { seconds_per_phase: {}, attempts: 0 };
  const isDone = partition.phase === "live";
  return html`<article class="restore ${isDone ? "good" : "busy"}" aria-label="Restore of partition ${partition.partition}">
    <h3><a href=${href("partitions", partition.partition)}>Partition ${partition.partition}</a> <small>${placed(partition.owner, partition.host)}${run.attempts > 1 ? html` · attempt ${run.attempts}` : nothing}</small>
      ${isDone ? ended(partition) : left(partition, nowMs)}</h3>
    ${stages(partition.phase, run)}
    ${bar(isDone ? 100 : (partition.percent ?? 0), `Restore of partition ${partition.partition}`)}
    <p class="figures">${isDone ? done(run) : run.progress ? progressText(run.progress) : html`${Math.round(partition.percent ?? 0)} %`}</p>
    ${partition.ending ? html`<p>Until live: ${lowered(inWords(partition.ending))}</p>` : nothing}
    ${run.waiting_for && !isDone ? html`<p>Waits: ${run.waiting_for}</p>` : nothing}
    ${run.snapshot ? html`<p><small>From snapshot ${run.snapshot.snapshot_id}: ${counted(run.snapshot.entries, "entry", "entries")}, ${bytes(run.snapshot.size_bytes)}, of ${moment(run.snapshot.created_at, nowMs)}${run.mode ? html`, then by ${run.mode}` : nothing}</small></p>` : nothing}
    ${run.warm ? html`<p><small>From ${run.warm === "copied" ? "its warm copy" : "memory"}: nothing had to be loaded${run.mode ? html`, then by ${run.mode}` : nothing}</small></p>` : nothing}
    ${run.fallback_reason ? html`<p class="message">${run.fallback_from ? `Snapshot ${run.fallback_from} could not be used: ` : ""}${run.fallback_reason}</p>` : nothing}
  </article>`;
}

// The seconds that are left, large enough to be seen from the door.
function left({ ending, since }, nowMs) {
  if (ending && !ending.isLate) return html`<span class="countdown">${roughly(Math.max(ending.high, 0))}</span>`;
  return since ? html`<span class="countdown">${seconds(Math.max(0, (nowMs - new Date(since)) / 1000))} so far</span>` : nothing;
}

const ended = ({ proof }) => (proof?.equal ? badge("good", "proven") : badge("good", "live"));

const total = ({ seconds_per_phase: spent }) => Object.values(spent).reduce((a, b) => a + b, 0);
const done = (run) => `Live after ${seconds(total(run))}${run.records_replayed ? `, ${counted(run.records_replayed, "record")} replayed` : ""}`;

function progressText(progress) {
  if (progress.target === progress.from) return "Nothing to read in this stage.";
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
