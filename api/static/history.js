// Who has owned a partition, its snapshots and its decisions.

import { html, nothing, svg } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { bytes, clock, count, counted, placed } from "./format.js";
import { badge, decided, failure, moment, section, table } from "./parts.js";
import { href } from "./routes.js";
import { Reading } from "./source.js";

const FEW = 8;

function reading({ histories, draw }, number) {
  if (!histories.has(number)) histories.set(number, new Reading(`api/v1/partitions/${number}/history`, draw));
  return histories.get(number);
}

export function historyTab(all, nowMs, page, asked) {
  const numbers = all.partitions.map((each) => each.partition).sort((a, b) => a - b);
  const number = asked ?? numbers[0] ?? 0;
  const log = reading(page, number);
  if (page.isFresh && numbers.length && !log.answer && !log.isBusy && !log.error) log.read();
  const { answer, isBusy, error } = log;
  const choose = html`<label>Partition <select @change=${(event) => { location.hash = href("history", event.target.value); }}>${repeat(numbers, (each) => each, (each) => html`<option ?selected=${each === number}>${each}</option>`)}</select></label>
    <button type="button" ?disabled=${isBusy || !page.isFresh} @click=${() => log.read()}>${isBusy ? "Reading …" : "Read it again"}</button>`;
  return html`${section("history", `History of partition ${number}`, numbers.length ? choose : nothing, html`
    <p>Its owners by the claims in the log, its snapshots, and what was decided by hand.</p>
    ${error ? failure(error) : nothing}
    ${answer ? tables(withOwner(answer, all), snapshotsOf(answer, all), nowMs, page.whole, page.toggleWhole) : nothing}`)}
    ${decisions(all, nowMs)}`;
}

// The present owner has a name, also when its claim was trimmed.
function withOwner(answer, all) {
  const now = all.partitions.find((each) => each.partition === answer.partition);
  const named = { process_id: now?.process_id, instance_id: now?.owner, host: now?.host };
  return { ...answer, ownerships: answer.ownerships.map((each) => (!each.process_id && each.owner_epoch === now?.owner_epoch ? { ...each, ...named } : each)) };
}

// Those that the log still points to, and those that the processes remember, by their batch.
function snapshotsOf(answer, all) {
  const found = new Map(answer.snapshots.map((each) => [each.snapshot_id, { ...each, at: each.batch_at, state: "pointed" }]));
  for (const each of all.answer.snapshots.items.filter((one) => one.partition === answer.partition)) {
    const known = found.get(each.snapshot_id);
    found.set(each.snapshot_id, { is_kept: false, ...known, ...each, at: each.finished_at ?? known?.at ?? each.started_at });
  }
  return [...found.values()].filter((each) => each.at).sort((a, b) => b.batch - a.batch);
}

function tables(answer, snapshots, nowMs, whole, toggleWhole) {
  const key = `history ${answer.partition}`;
  const isWhole = whole.has(key);
  const few = (rows) => (isWhole ? rows : rows.slice(0, FEW));
  const { decisions } = answer;
  const longest = Math.max(answer.ownerships.length, snapshots.length, decisions.length);
  return html`${timeline(answer, snapshots, nowMs)}
    ${table(`Owners of partition ${answer.partition}`, ["Owner", "Claimed", ["Epoch", "medium"], ["Last batch", "medium"], ["Last commit", "medium"]], few(answer.ownerships).map((each) => [ownerOf(each), moment(each.claimed_at, nowMs), count(each.owner_epoch), each.last_batch === null ? "none" : count(each.last_batch), moment(each.last_commit_at, nowMs)]), "No process has claimed it yet.")}
    ${table(`Chain of snapshots of partition ${answer.partition}`, ["Batch", "At", "State", ["Manifest", "medium"], ["Size", "medium"]], few(snapshots).map((each) => [count(each.batch), moment(each.at, nowMs), stateOf(each), count(each.manifest_offset), each.size_bytes ? bytes(each.size_bytes) : "–"]), "No snapshot is known.")}
    ${decisions.length ? table(`Decisions of partition ${answer.partition}`, ["Batch", ["Finding", "medium"], "What was decided", ["By, and why", "medium"], "At"], few(decisions).map((each) => [count(each.batch), ...decided(each), moment(each.at, nowMs)]), "") : nothing}
    ${longest > FEW ? html`<button type="button" class="more" @click=${() => toggleWhole(key)}>${isWhole ? "Show fewer" : `Show all ${[counted(answer.ownerships.length, "owner"), counted(snapshots.length, "snapshot"), counted(decisions.length, "decision")].join(", ")}`}</button>` : nothing}
    ${answer.is_whole ? nothing : html`<p><small>Only the newest are shown. The log has more.</small></p>`}`;
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

// ---- the owners of a partition, its snapshots and the decisions about it, along an axis of time

const WIDTH = 1200, NAMES = 150, RIGHT = 1190, ROW = 34, BAR = 18, AXIS = 26;
const STEPS_SECONDS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800];
const TICKS = 8;
const MINUTE_MS = 60_000, DAY_MS = 86_400_000;

const ownerOf = (each) => (each.process_id ? placed(each.instance_id, each.host) : "claim was trimmed");

function timeline({ partition, ownerships, decisions = [] }, snapshots, nowMs) {
  const times = [...ownerships.map((each) => each.claimed_at ?? each.last_commit_at).filter(Boolean), ...snapshots.map((each) => each.at), ...decisions.map((each) => each.at)].map(Date.parse);
  if (!times.length) return nothing;
  const first = Math.min(...times), span = Math.max(nowMs - first, 1000);
  // An owner whose claim was trimmed had it before all that is known.
  const owners = ownerships.map((each) => ({ ...each, from: each.claimed_at ? Date.parse(each.claimed_at) : first }));
  const x = (at) => NAMES + ((Math.min(Math.max(at, first), nowMs) - first) / span) * (RIGHT - NAMES);
  const names = [...new Set(owners.map(ownerOf))];
  const rows = [...names, "snapshots", ...(decisions.length ? ["decisions"] : [])];
  const y = (name) => AXIS + rows.indexOf(name) * ROW;
  const height = AXIS + rows.length * ROW;
  return html`<figure class="timeline"><figcaption>${counted(owners.length, "owner")}, ${counted(snapshots.length, "snapshot")}${decisions.length ? `, ${counted(decisions.length, "decision")}` : ""} from ${clock(first, nowMs)} until now</figcaption>
    <div class="scroll" tabindex="0" role="region" aria-label="Timeline of partition ${partition}"><svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="The tables below show the same.">
      ${ticks(first, nowMs).map((at) => svg`<line class="tick" x1=${x(at)} x2=${x(at)} y1=${AXIS - 6} y2=${height}></line><text class="at" x=${x(at)} y="14">${label(at, span)}</text>`)}
      ${rows.map((name) => svg`<text class="name" x="0" y=${y(name) + BAR - 4}>${name.length > 20 ? `${name.slice(0, 19)}…` : name}<title>${name}</title></text>`)}
      ${owners.map((each, index) => bar(each, owners[index - 1], x, y(ownerOf(each)), nowMs))}
      ${snapshots.map((each) => svg`<circle class=${each.is_kept ? "kept" : each.state === "failed" ? "failed" : "old"} cx=${x(Date.parse(each.at))} cy=${y("snapshots") + BAR / 2} r="6"><title>batch ${count(each.batch)}, ${each.state}, ${clock(each.at, nowMs)}</title></circle>`)}
      ${decisions.map((each) => svg`<rect class="decision" x=${x(Date.parse(each.at)) - 5} y=${y("decisions") + 4} width="10" height="10"><title>${each.decided}, ${each.by}, ${clock(each.at, nowMs)}</title></rect>`)}
    </svg></div></figure>`;
}

// From its claim to the next one; the newest owner has it still.
function bar(each, next, x, y, nowMs) {
  const from = x(each.from);
  const until = x(next ? next.from : nowMs);
  return svg`<rect class="${next ? "past" : "present"} ${each.claimed_at ? "" : "trimmed"}" x=${from} y=${y} width=${Math.max(until - from, 3)} height=${BAR} rx="3"><title>${ownerOf(each)}, epoch ${count(each.owner_epoch)}${each.last_batch === null ? ", no batch" : `, up to batch ${count(each.last_batch)}`}${each.claimed_at ? `, since ${clock(each.claimed_at, nowMs)}` : ""}</title></rect>`;
}

// Round times of the browser's zone, at most TICKS of them.
function ticks(first, nowMs) {
  const stepMs = 1000 * (STEPS_SECONDS.find((each) => (nowMs - first) / 1000 / each <= TICKS) ?? Math.ceil((nowMs - first) / TICKS / DAY_MS) * 86400);
  const shiftMs = new Date(first).getTimezoneOffset() * MINUTE_MS;
  const begin = Math.ceil((first - shiftMs) / stepMs) * stepMs + shiftMs;
  return Array.from({ length: Math.max(0, Math.floor((nowMs - begin) / stepMs) + 1) }, (_, index) => begin + index * stepMs);
}

function label(at, spanMs) {
  const date = new Date(at);
  if (spanMs > 2 * DAY_MS) return date.toLocaleDateString("en-CA").slice(5);
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(spanMs < 5 * MINUTE_MS ? { second: "2-digit" } : {}) });
}
