// The changes of one key, as the log of its partition has them.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { count } from "./format.js";
import { failure, moment, stored, table } from "./parts.js";
import { get } from "./source.js";

const LIMIT = 20;
let read = null; // what was asked for last, and what is known of it

export function forget() {
  read = null;
}

export async function readChanges(path, key, partition, draw) {
  read = { path, key, partition, told: null, isAtEnd: false };
  await further(read, draw);
}

// Read what is older than what is known.
async function further(one, draw) {
  Object.assign(one, { isBusy: true, error: null });
  draw();
  try {
    const query = new URLSearchParams({ partition: one.partition, limit: LIMIT });
    if (one.told) query.set("before", one.told.from_offset);
    const found = await get(`${one.path}?${query}`);
    const known = one.told ?? { items: [], batches_without_changes: 0 };
    one.isAtEnd = found.is_whole || found.from_offset === null;
    one.told = {
      ...(found.from_offset === null && one.told ? one.told : found),
      items: [...known.items, ...found.items],
      batches_without_changes: known.batches_without_changes + found.batches_without_changes,
    };
  } catch (error) {
    one.error = error;
  }
  one.isBusy = false;
  if (read === one) draw();
}

export function changes(nowMs, isFresh, draw) {
  if (!read) return nothing;
  const { key, partition, told, isBusy, isAtEnd, error } = read;
  return html`<div class="changes"><h3>Changes of ${stored(key)} in partition ${partition}</h3>
    ${told ? shown(told, isAtEnd, nowMs) : nothing}
    <div role="status">${isBusy ? html`<p class="empty">Reading the log …</p>` : nothing}${told && !isBusy ? html`<p><small>${extent(told, isAtEnd)}</small></p>` : nothing}</div>
    ${error ? failure(error) : nothing}
    ${isBusy || (told && isAtEnd) ? nothing : html`<button type="button" class="more" ?disabled=${!isFresh} @click=${() => further(read, draw)}>${told ? "Read further back" : "Read again"}</button>`}</div>`;
}

function shown({ items }, isAtEnd, nowMs) {
  const rows = items.map((each) => [moment(each.written_at, nowMs), count(each.batch), valueOf(each), rangesOf(each), count(each.increment_offset)]);
  return table("Batches that changed it", ["At", "Batch", "Value after it", ["The batch read", "medium"], ["Increment", "medium"]], rows, isAtEnd ? "The log has no change of this key." : "No change of this key was found yet.");
}

const valueOf = (each) => (each.deleted ? html`<em>deleted</em>` : stored(JSON.stringify(each.value)));

const rangesOf = (each) => each.ranges.map((one) => `${one.topic} ${[...new Set([one.start_offset, one.end_offset - 1])].map(count).join("…")}`).join(", ") || "nothing";

function extent(told, isAtEnd) {
  const { from_batch: oldest, batches_without_changes: silent } = told;
  const reach = told.is_whole ? "These are all changes since the first batch." : oldest === null ? "The log could not be read back to a batch." : `Read back to batch ${count(oldest)}${isAtEnd ? ", where the log begins: what is older was trimmed" : ""}.`;
  return silent ? `${reach} ${count(silent)} of these batches do not say what they changed.` : reach;
}
