// Entries of the state: the value of a key, or the entries of a partition page by page.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { changes, forget, readChanges } from "./changes.js";
import { count, seconds } from "./format.js";
import { badge, failure, stored } from "./parts.js";
import { get } from "./source.js";

const PAGE = 50;
const asked = { isBusy: false, answer: null, error: null };

export function entries(all, nowMs, isFresh, draw) {
  const stores = [...new Set(all.partitions.flatMap((each) => each.stores.map((store) => store.name)))].sort();
  return html`<section id="state" aria-labelledby="state-title"><div class="head"><h2 id="state-title">State</h2></div>
    ${stores.length ? html`${form(stores, all, isFresh, draw)}<div role="status">${outcome(isFresh, draw)}</div>${changes(nowMs, isFresh, draw)}` : html`<p class="empty">No partition has stores that can be read.</p>`}</section>`;
}

function form(stores, all, isFresh, draw) {
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.target, event.submitter);
    const ask = { ...Object.fromEntries(given), isStale: given.has("stale") };
    (given.get("what") === "key" ? lookUp : browse)(ask, draw);
  };
  const off = !isFresh || asked.isBusy;
  return html`<form class="reading" @submit=${submit}>
    <label>Store <select name="store">${options(stores)}</select></label>
    <label class="long">Key <input name="key" autocomplete="off" spellcheck="false" placeholder='ada, 7, or ["tea",7]'></label>
    <button name="what" value="key" class="act" ?disabled=${off}>Look up</button>
    <label>Partition <select name="partition">${options([...Array(all.facts.partition_count ?? 0).keys()])}</select></label>
    <label class="bound">Before <input name="to" autocomplete="off" spellcheck="false" placeholder="a key"></label>
    <label class="bound">Prefix <input name="prefix" autocomplete="off" spellcheck="false"></label>
    <button name="what" value="browse" ?disabled=${off}>Browse</button>
    <label class="check"><input type="checkbox" name="stale"> also from warm copies</label></form>
    <p class="empty">Look up a key in all partitions. In an ordered store you can also browse from a key, up to another key, or by prefix.</p>`;
}

// Keyed, so that no choice changes while it is looked at.
const options = (values) => repeat(values, (each) => each, (each) => html`<option>${each}</option>`);

const path = (...parts) => ["api/v1/state", ...parts.map(encodeURIComponent)].join("/");

const changesOf = (store, key, partition, draw) => readChanges(["api/v1/key-history", ...[store, key].map(encodeURIComponent)].join("/"), key, partition, draw);

function lookUp({ store, key, partition, isStale }, draw) {
  if (!key) return fail(new Error("Enter a key, or browse a partition."), draw);
  if (key === "." || key === "..") return fail(new Error("A browser removes . and .. from a path, so it cannot ask for this key."), draw);
  const missed = () => changesOf(store, key, partition, draw);
  return answered(draw, { label: `Changes in partition ${partition}`, read: missed }, async () => {
    const { items, not_read: missing } = await get(`${path(store, key)}?stale=${isStale}`);
    return { store, rows: items.map((each) => ({ ...each, key })), missing, next: null };
  });
}

function browse(ask, draw, after = null) {
  const { store, key, to, prefix, partition, isStale } = ask;
  const query = new URLSearchParams({ partition, stale: isStale, limit: PAGE });
  for (const [name, value] of Object.entries({ from: key, to, prefix })) if (value) query.set(name, value);
  if (after !== null) query.set("after", after);
  return answered(draw, null, async () => {
    const { items, next_after: next, ...at } = await get(`${path(store)}?${query}`);
    const more = next === null ? null : () => browse(ask, draw, next);
    return { store, rows: items.map((each) => ({ ...at, ...each })), missing: [], next: more };
  });
}

async function answered(draw, missed, ask) {
  Object.assign(asked, { isBusy: true, error: null, missed });
  forget();
  draw();
  try {
    asked.answer = await ask();
    asked.isBusy = false;
    draw();
  } catch (error) {
    fail(error, draw);
  }
}

function fail(error, draw) {
  Object.assign(asked, { isBusy: false, answer: null, error });
  draw();
}

function outcome(isFresh, draw) {
  const { answer, error, missed } = asked;
  if (error) return html`${failure(error)}
    ${error.kind === "key-not-found" ? html`<p>It may have existed before. <button type="button" ?disabled=${!isFresh} @click=${missed.read}>${missed.label}</button></p>` : nothing}`;
  if (!answer) return nothing;
  const { store, rows, missing, next } = answer;
  return html`${missing.length ? html`<p class="message">${badge("unknown", "not read")} ${missing.map((each) => `partition ${each.partition}: ${each.reason}`).join("; ")}</p>` : nothing}
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Entries: table"><table class="entries"><thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">Partition</th><th scope="col" class="medium">As of batch</th><th scope="col" class="medium">From</th><th scope="col"><span class="hidden">History</span></th></tr></thead>
      <tbody>${rows.map((each) => html`<tr><td>${stored(shown(each.key))}</td><td>${stored(JSON.stringify(each.value))}</td><td>${each.partition}</td><td class="medium">${count(each.batch)}</td><td class="medium">${from(each)}</td><td><button type="button" ?disabled=${!isFresh} @click=${() => changesOf(store, shown(each.key), each.partition, draw)}>Changes<span class="hidden"> of ${shown(each.key)} in partition ${each.partition}</span></button></td></tr>`)}</tbody></table></div>` : html`<p class="empty">No entries.</p>`}
    ${next ? html`<button type="button" class="more" ?disabled=${asked.isBusy} @click=${next}>Next ${PAGE}</button>` : nothing}`;
}

const shown = (key) => (typeof key === "string" ? key : JSON.stringify(key));

const from = ({ answered_by: who, age_seconds: age }) => (who === "owner" ? "its owner" : `a warm copy, ${seconds(age)} old`);
