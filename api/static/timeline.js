// The owners of a partition, its snapshots and the decisions about it, along an axis of time.

import { html, nothing, svg } from "./vendor/lit-html/lit-html.js";
import { clock, count, counted, placed } from "./format.js";

const WIDTH = 1200, NAMES = 150, RIGHT = 1190, ROW = 34, BAR = 18, AXIS = 26;
const STEPS_SECONDS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800];
const TICKS = 8;
const MINUTE_MS = 60_000, DAY_MS = 86_400_000;

export const ownerOf = (each) => (each.process_id ? placed(each.instance_id, each.host) : "claim was trimmed");

export function timeline({ partition, ownerships, decisions = [] }, snapshots, nowMs) {
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
