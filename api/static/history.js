// Who has owned a partition, its snapshots and its decisions, over time: a picture of the first two, and all as tables.

import { html, nothing, svg } from "./vendor/lit-html/lit-html.js";
import { bytes, clock, count, counted, placed } from "./format.js";
import { badge, decided, failure, moment, table } from "./parts.js";
import { get } from "./source.js";

const WIDTH = 1200, LEFT = 2, ROW = 22, TOP = 20;
const FEW = 8;

// One per page: what was read from the log, by partition.
export class Histories {
  #found = new Map();
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  of(number) {
    return this.#found.get(number) ?? {};
  }

  async read(number) {
    this.#set(number, { ...this.of(number), isBusy: true, error: null });
    try {
      this.#set(number, { told: await get(`api/v1/partitions/${number}/history`) });
    } catch (error) {
      this.#set(number, { ...this.of(number), isBusy: false, error });
    }
  }

  #set(number, value) {
    this.#found.set(number, value);
    this.#draw();
  }
}

export function history(partition, all, nowMs, { histories, isFresh, whole, toggleWhole }) {
  const { told, isBusy, error } = histories.of(partition.partition);
  const label = told ? "Read it again" : "Read it from the log";
  return html`<div class="wide history"><h3>History</h3>
    <p><button type="button" ?disabled=${isBusy || !isFresh} @click=${() => histories.read(partition.partition)}>${isBusy ? "Reading …" : label}</button>
    <small>who has owned it, by the claims in the log, the snapshots that were pointed to, and what was decided by hand</small></p>
    ${error ? failure(error) : nothing}
    ${told ? shown(told, snapshotsOf(told, all), nowMs, whole, toggleWhole) : nothing}</div>`;
}

// Those that the log still points to, and those that the processes remember, by their batch.
function snapshotsOf(told, all) {
  const found = new Map(told.snapshots.map((each) => [each.snapshot_id, { ...each, at: each.batch_at, state: "pointed" }]));
  for (const each of all.told.snapshots.items.filter((one) => one.partition === told.partition)) {
    const known = found.get(each.snapshot_id);
    found.set(each.snapshot_id, { is_kept: false, ...known, ...each, at: each.finished_at ?? known?.at ?? each.started_at });
  }
  return [...found.values()].filter((each) => each.at).sort((a, b) => b.batch - a.batch);
}

function shown(told, snapshots, nowMs, whole, toggleWhole) {
  const key = `history ${told.partition}`;
  const isWhole = whole.has(key);
  const few = (rows) => (isWhole ? rows : rows.slice(0, FEW));
  const decisions = told.decisions ?? []; // of an older version there are none
  const longest = Math.max(told.ownerships.length, snapshots.length, decisions.length);
  return html`${picture(told, snapshots, nowMs)}
    ${table(`Owners of partition ${told.partition}`, ["Owner", "Claimed", ["Epoch", "medium"], ["Last batch", "medium"], ["Last commit", "medium"]], few(told.ownerships).map((each) => [ownerOf(each), moment(each.claimed_at, nowMs), count(each.owner_epoch), each.last_batch === null ? "none" : count(each.last_batch), moment(each.last_commit_at, nowMs)]), "Nobody has claimed it yet.")}
    ${table(`Chain of snapshots of partition ${told.partition}`, ["Batch", "At", "State", ["Manifest", "medium"], ["Size", "medium"]], few(snapshots).map((each) => [count(each.batch), moment(each.at, nowMs), stateOf(each), count(each.manifest_offset), each.size_bytes ? bytes(each.size_bytes) : "–"]), "No snapshot is known.")}
    ${decisions.length ? table(`Decisions of partition ${told.partition}`, ["Batch", ["Finding", "medium"], "What was decided", ["By, and why", "medium"], "At"], few(decisions).map((each) => [count(each.batch), ...decided(each), moment(each.at, nowMs)]), "") : nothing}
    ${longest > FEW ? html`<button type="button" class="more" @click=${() => toggleWhole(key)}>${isWhole ? "Show fewer" : `Show all ${[counted(told.ownerships.length, "owner"), counted(snapshots.length, "snapshot"), counted(decisions.length, "decision")].join(", ")}`}</button>` : nothing}
    ${told.is_whole ? nothing : html`<p><small>Only the newest are shown. The log has more.</small></p>`}`;
}

const ownerOf = (each) => (each.process_id ? placed(each.instance_id, each.host) : "its claim was trimmed");

function stateOf(each) {
  if (each.state !== "pointed") return badge(each.state === "failed" ? "bad" : "busy", each.state);
  return each.is_kept ? badge("good", "pointed to") : badge("past", "superseded");
}

// ---- the picture

function picture(told, snapshots, nowMs) {
  const owners = told.ownerships.filter((each) => each.claimed_at);
  if (!owners.length) return nothing;
  const names = [...new Set(owners.map(ownerOf))];
  const times = [...owners.map((each) => each.claimed_at), ...snapshots.map((each) => each.at)].map((each) => new Date(each).getTime());
  const first = Math.min(...times), span = Math.max(nowMs - first, 1);
  const x = (at) => LEFT + ((Math.min(Math.max(at, first), nowMs) - first) / span) * (WIDTH - 2 * LEFT);
  const chainY = TOP + names.length * ROW * 2 + 14;
  return html`<figure class="timeline"><figcaption>Owners and snapshots from ${clock(new Date(first).toISOString(), nowMs)} until now</figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label="Timeline of partition ${told.partition}"><svg viewBox="0 0 ${WIDTH} ${chainY + 34}" role="img" aria-label="${owners.length} claims by ${names.length} processes, ${snapshots.length} snapshots. The tables below show the same.">
      ${names.map((name, row) => svg`<text class="name" x=${LEFT} y=${TOP + row * ROW * 2 - 6}>${name}</text>`)}
      ${owners.map((each, index) => span_(each, owners[index - 1], names, x, nowMs))}
      <text class="name" x=${LEFT} y=${chainY - 8}>snapshots</text>
      <line class="chain" x1=${LEFT} x2=${WIDTH - LEFT} y1=${chainY + 6} y2=${chainY + 6}></line>
      ${snapshots.map((each) => svg`<circle class=${each.is_kept ? "kept" : each.state === "failed" ? "failed" : "old"} cx=${x(new Date(each.at).getTime())} cy=${chainY + 6} r="6"><title>batch ${count(each.batch)}, ${each.state}</title></circle>`)}
    </svg></div></figure>`;
}

// From its claim to the next one; the newest owner has it still.
function span_(each, next, names, x, nowMs) {
  const from = x(new Date(each.claimed_at).getTime());
  const until = x(next ? new Date(next.claimed_at).getTime() : nowMs);
  const y = TOP + names.indexOf(ownerOf(each)) * ROW * 2;
  return svg`<rect class=${next ? "past" : "present"} x=${from} y=${y} width=${Math.max(until - from, 3)} height=${ROW - 6} rx="2"><title>${ownerOf(each)}, epoch ${count(each.owner_epoch)}${each.last_batch === null ? ", no batch" : `, up to batch ${count(each.last_batch)}`}</title></rect>`;
}
