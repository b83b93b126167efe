// Who has owned a partition, its snapshots and its decisions.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { bytes, count, counted } from "./format.js";
import { badge, decided, failure, moment, section, table } from "./parts.js";
import { href } from "./routes.js";
import { get } from "./source.js";
import { ownerOf, timeline } from "./timeline.js";

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

export function historyTab(all, nowMs, page, asked) {
  const numbers = all.partitions.map((each) => each.partition).sort((a, b) => a - b);
  const number = asked ?? numbers[0] ?? 0;
  const { told, isBusy, error } = page.histories.of(number);
  if (page.isFresh && numbers.length && !told && !isBusy && !error) page.histories.read(number);
  const choose = html`<label>Partition <select @change=${(event) => { location.hash = href("history", event.target.value); }}>${repeat(numbers, (each) => each, (each) => html`<option ?selected=${each === number}>${each}</option>`)}</select></label>
    <button type="button" ?disabled=${isBusy || !page.isFresh} @click=${() => page.histories.read(number)}>${isBusy ? "Reading …" : "Read it again"}</button>`;
  return html`${section("history", `History of partition ${number}`, numbers.length ? choose : nothing, html`
    <p>Its owners by the claims in the log, its snapshots, and what was decided by hand.</p>
    ${error ? failure(error) : nothing}
    ${told ? shown(withOwner(told, all), snapshotsOf(told, all), nowMs, page.whole, page.toggleWhole) : nothing}`)}
    ${decisions(all, nowMs)}`;
}

// The present owner has a name, also when its claim was trimmed.
function withOwner(told, all) {
  const now = all.partitions.find((each) => each.partition === told.partition);
  const named = { process_id: now?.process_id, instance_id: now?.owner, host: now?.host };
  return { ...told, ownerships: told.ownerships.map((each) => (!each.process_id && each.owner_epoch === now?.owner_epoch ? { ...each, ...named } : each)) };
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
  return html`${timeline(told, snapshots, nowMs)}
    ${table(`Owners of partition ${told.partition}`, ["Owner", "Claimed", ["Epoch", "medium"], ["Last batch", "medium"], ["Last commit", "medium"]], few(told.ownerships).map((each) => [ownerOf(each), moment(each.claimed_at, nowMs), count(each.owner_epoch), each.last_batch === null ? "none" : count(each.last_batch), moment(each.last_commit_at, nowMs)]), "No process has claimed it yet.")}
    ${table(`Chain of snapshots of partition ${told.partition}`, ["Batch", "At", "State", ["Manifest", "medium"], ["Size", "medium"]], few(snapshots).map((each) => [count(each.batch), moment(each.at, nowMs), stateOf(each), count(each.manifest_offset), each.size_bytes ? bytes(each.size_bytes) : "–"]), "No snapshot is known.")}
    ${decisions.length ? table(`Decisions of partition ${told.partition}`, ["Batch", ["Finding", "medium"], "What was decided", ["By, and why", "medium"], "At"], few(decisions).map((each) => [count(each.batch), ...decided(each), moment(each.at, nowMs)]), "") : nothing}
    ${longest > FEW ? html`<button type="button" class="more" @click=${() => toggleWhole(key)}>${isWhole ? "Show fewer" : `Show all ${[counted(told.ownerships.length, "owner"), counted(snapshots.length, "snapshot"), counted(decisions.length, "decision")].join(", ")}`}</button>` : nothing}
    ${told.is_whole ? nothing : html`<p><small>Only the newest are shown. The log has more.</small></p>`}`;
}

function stateOf(each) {
  if (each.state !== "pointed") return badge(each.state === "failed" ? "bad" : "busy", each.state);
  return each.is_kept ? badge("good", "in use") : badge("past", "superseded");
}

// ---- of the app

function decisions({ partitions }, nowMs) {
  const found = partitions.flatMap((p) => p.decisions.map((each) => ({ ...each, partition: p.partition }))).sort((a, b) => (a.at < b.at ? 1 : -1));
  const rows = found.map((each) => [each.partition, ...decided(each), moment(each.at, nowMs)]);
  return section("decisions", "Decisions", nothing, table("Decisions", ["Partition", "Finding", "What was decided", "By, and why", "At"], rows, "None. No loss was accepted, and no state was changed by hand."));
}
