// The entries of the state: Get is the value of a key, Browse the entries of a partition page by page.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { count, seconds } from "./format.js";
import { badge, failure, moment, stored, table } from "./parts.js";
import { get } from "./source.js";
import { tree } from "./tree.js";

const PAGE = 50;
const FEW = 3; // so many values are shown unfolded
const state = { isBusy: false, answer: null, error: null };

export function entries(all, nowMs, { isFresh, draw }) {
  const stores = [...new Set(all.partitions.flatMap((each) => each.stores.map((store) => store.name)))].sort((a, b) => a.startsWith("_") - b.startsWith("_") || (a < b ? -1 : 1)); // internal ones last
  return html`<section aria-labelledby="state-title"><h2 id="state-title">State</h2>
    ${stores.length ? html`<div class="ways-in">${getForm(stores, isFresh, draw)}${browseForm(stores, all.facts, isFresh, draw)}</div>
    ${changes(nowMs, isFresh, draw)}<div role="status">${outcome(isFresh, draw)}</div>` : html`<p class="empty">No partition has stores that can be read.</p>`}</section>`;
}

// Keyed, so that no choice changes while it is looked at.
const options = (values) => repeat(values, (each) => each, (each) => html`<option>${each}</option>`);
const STALE = html`<label class="check"><input type="checkbox" name="stale"> also from warm copies</label>`;

const given = (act) => (event) => {
  event.preventDefault();
  const fields = new FormData(event.target);
  act({ ...Object.fromEntries(fields), isStale: fields.has("stale") });
};

function getForm(stores, isFresh, draw) {
  return html`<form class="reading" aria-labelledby="get-title" @submit=${given((ask) => lookUp(ask, draw))}><h3 id="get-title">Get <small>the value of a key, from whichever partition has it</small></h3>
    <label>Store <select name="store">${options(stores)}</select></label>
    <label class="long">Key <input name="key" autocomplete="off" spellcheck="false" placeholder='ada, 7, or ["tea",7]'></label>
    ${STALE}<button class="act" ?disabled=${!isFresh || state.isBusy}>Get</button></form>`;
}

function browseForm(stores, { partition_count: partitions }, isFresh, draw) {
  return html`<form class="reading" aria-labelledby="browse-title" @submit=${given((ask) => browse(ask, draw))}><h3 id="browse-title">Browse <small>a partition; bounds are for ordered stores</small></h3>
    <label>Store <select name="store">${options(stores)}</select></label>
    <label>Partition <select name="partition">${options([...Array(partitions ?? 0).keys()])}</select></label>
    <label class="bound">From key <input name="from" autocomplete="off" spellcheck="false"></label>
    <label class="bound">Before key <input name="to" autocomplete="off" spellcheck="false"></label>
    <label class="bound">Prefix <input name="prefix" autocomplete="off" spellcheck="false"></label>
    ${STALE}<button class="act" ?disabled=${!isFresh || state.isBusy}>Browse</button></form>`;
}

const path = (...parts) => ["api/v1/state", ...parts.map(encodeURIComponent)].join("/");

const changesOf = (store, key, partition, draw) => readChanges(["api/v1/key-history", ...[store, key].map(encodeURIComponent)].join("/"), key, partition, draw);

function lookUp({ store, key, isStale }, draw) {
  if (!key) return fail(new Error("Enter a key, or browse a partition."), draw);
  if (key === "." || key === "..") return fail(new Error("A browser removes . and .. from a path, so it cannot ask for this key."), draw);
  return load(draw, { store, key }, async () => {
    const { items, not_read: missing } = await get(`${path(store, key)}?stale=${isStale}`);
    return { store, rows: items.map((each) => ({ ...each, key })), missing, next: null };
  });
}

function browse(ask, draw, after = null) {
  const { store, from, to, prefix, partition, isStale } = ask;
  const query = new URLSearchParams({ partition, stale: isStale, limit: PAGE });
  for (const [name, value] of Object.entries({ from, to, prefix })) if (value) query.set(name, value);
  if (after !== null) query.set("after", after);
  return load(draw, null, async () => {
    const { items, next_after: next, ...at } = await get(`${path(store)}?${query}`);
    const more = next === null ? null : () => browse(ask, draw, next);
    return { store, rows: items.map((each) => ({ ...at, ...each })), missing: [], next: more };
  });
}

async function load(draw, missed, ask) {
  Object.assign(state, { isBusy: true, error: null, missed });
  forget();
  draw();
  try {
    state.answer = await ask();
    state.isBusy = false;
    draw();
  } catch (error) {
    fail(error, draw);
  }
}

function fail(error, draw) {
  Object.assign(state, { isBusy: false, answer: null, error });
  draw();
}

function outcome(isFresh, draw) {
  const { answer, error, missed } = state;
  if (error) return html`${failure(error)}${error.kind === "key-not-found" ? past(missed, error, isFresh, draw) : nothing}`;
  if (!answer) return nothing;
  const { store, rows, missing, next } = answer;
  return html`${missing.length ? html`<p class="message">${badge("unknown", "not read")} ${missing.map((each) => `partition ${each.partition}: ${each.reason}`).join("; ")}</p>` : nothing}
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Entries: table"><table class="entries"><thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">Partition</th><th scope="col" class="medium">As of batch</th><th scope="col" class="medium">From</th><th scope="col"><span class="hidden">History</span></th></tr></thead>
      <tbody>${rows.map((each) => html`<tr><td>${stored(asText(each.key))}</td><td>${tree(each.value, rows.length > FEW ? 0 : 2)}</td><td>${each.partition}</td><td class="medium">${count(each.batch)}</td><td class="medium">${from(each)}</td><td><button type="button" ?disabled=${!isFresh} @click=${() => changesOf(store, asText(each.key), each.partition, draw)}>Changes<span class="hidden"> of ${asText(each.key)} in partition ${each.partition}</span></button></td></tr>`)}</tbody></table></div>` : html`<p class="empty">No entries.</p>`}
    ${next ? html`<button type="button" class="more" ?disabled=${state.isBusy} @click=${next}>Next ${PAGE}</button>` : nothing}`;
}

// A key that is in no partition now may have been in one.
function past({ store, key }, { partitions }, isFresh, draw) {
  const look = given(({ partition }) => changesOf(store, key, partition, draw));
  return html`<form class="reading" aria-label="Changes of a key" @submit=${look}><p>It may have existed before.</p>
    <label>Partition <select name="partition">${options(partitions)}</select></label><button ?disabled=${!isFresh}>Changes</button></form>`;
}

const asText = (key) => (typeof key === "string" ? key : JSON.stringify(key));

const from = ({ answered_by: who, age_seconds: age }) => (who === "owner" ? "its owner" : `a warm copy, ${seconds(age)} old`);

// ---- the changes of one key, as the log of its partition has them

const LIMIT = 20;
let read = null; // what was asked for last, and what is known of it

function forget() {
  read = null;
}

async function readChanges(path, key, partition, draw) {
  read = { path, key, partition, answer: null, isAtEnd: false };
  await further(read, draw);
}

// Read what is older than what is known.
async function further(one, draw) {
  Object.assign(one, { isBusy: true, error: null });
  draw();
  try {
    const query = new URLSearchParams({ partition: one.partition, limit: LIMIT });
    if (one.answer) query.set("before", one.answer.from_offset);
    const found = await get(`${one.path}?${query}`);
    const known = one.answer ?? { items: [], batches_without_changes: 0 };
    one.isAtEnd = found.is_whole || found.from_offset === null;
    one.answer = {
      ...(found.from_offset === null && one.answer ? one.answer : found),
      items: [...known.items, ...found.items],
      batches_without_changes: known.batches_without_changes + found.batches_without_changes,
    };
  } catch (error) {
    one.error = error;
  }
  one.isBusy = false;
  if (read === one) draw();
}

function changes(nowMs, isFresh, draw) {
  if (!read) return nothing;
  const { key, partition, answer, isBusy, isAtEnd, error } = read;
  return html`<div class="changes"><h3>Changes of ${stored(key)} in partition ${partition}</h3>
    ${answer ? changeTable(answer, isAtEnd, nowMs) : nothing}
    <div role="status">${isBusy ? html`<p class="empty">Reading the log …</p>` : nothing}${answer && !isBusy ? html`<p><small>${extent(answer, isAtEnd)}</small></p>` : nothing}</div>
    ${error ? failure(error) : nothing}
    ${isBusy || (answer && isAtEnd) ? nothing : html`<button type="button" class="more" ?disabled=${!isFresh} @click=${() => further(read, draw)}>${answer ? "Read further back" : "Read again"}</button>`}</div>`;
}

function changeTable({ items }, isAtEnd, nowMs) {
  const rows = items.map((each) => [moment(each.written_at, nowMs), count(each.batch), valueOf(each), rangesOf(each), count(each.increment_offset)]);
  return table("Batches that changed it", ["At", "Batch", "Value after it", ["The batch read", "medium"], ["Increment", "medium"]], rows, isAtEnd ? "The log has no change of this key." : "No change of this key was found yet.");
}

const valueOf = (each) => (each.deleted ? html`<em>deleted</em>` : stored(JSON.stringify(each.value)));

const rangesOf = (each) => each.ranges.map((one) => `${one.topic} ${[...new Set([one.start_offset, one.end_offset - 1])].map(count).join("…")}`).join(", ") || "nothing";

function extent(answer, isAtEnd) {
  const { from_batch: oldest, batches_without_changes: silent } = answer;
  const reach = answer.is_whole ? "These are all changes since the first batch." : oldest === null ? "The log could not be read back to a batch." : `Read back to batch ${count(oldest)}${isAtEnd ? ", where the log begins: what is older was trimmed" : ""}.`;
  return silent ? `${reach} ${count(silent)} of these batches do not say what they changed.` : reach;
}
