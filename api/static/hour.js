// The last hour of the app, or of a partition: what the processes remember, and what this page has heard since.

import { get } from "./source.js";

const HOUR_SECONDS = 3600;
const AGAIN_SECONDS = 20; // they may have seen more than this page, as what was between two of its answers
const GAP_SECONDS = 15;
const ROW_SECONDS = 5; // in less, one batch more or less looks like a peak
const NO_COMMITS = { total: 0, seconds_total: 0, longest_seconds: 0 }; // an older process does not tell any

// One per page: the app, and the partitions that are open.
export class Hours {
  #open = new Map();
  #draw;

  constructor(draw) {
    this.#draw = draw;
    this.app = new Hour(null, draw);
  }

  of(number) {
    if (!this.#open.has(number)) this.#open.set(number, new Hour(number, this.#draw));
    return this.#open.get(number);
  }

  // Take one answer.
  add(partitions, nowMs, open) {
    for (const number of this.#open.keys()) if (!open.has(number)) this.#open.delete(number);
    for (const each of [this.app, ...this.#open.values()]) each.add(partitions, nowMs / 1000);
  }
}

class Hour {
  partition;
  rows = [];
  isAsked = false;
  error = null;
  #past = [];
  #heard = [];
  #before = null;
  #askedAt = -Infinity;
  #draw;

  constructor(partition, draw) {
    Object.assign(this, { partition });
    this.#draw = draw;
  }

  add(all, at) {
    const found = all.filter((each) => each.level !== "unknown" && (this.partition === null || each.partition === this.partition));
    const totals = new Map(found.map((each) => [`${each.process_id} ${each.partition}`, { records: each.records_total, commits: each.commits ?? NO_COMMITS }]));
    if (this.#before && at < this.#before.at - GAP_SECONDS) this.#forget(); // the clock of the process was set back
    const before = this.#before;
    if (before && at - before.at < ROW_SECONDS) return;
    this.#before = { at, totals };
    const isGap = before && at - before.at > GAP_SECONDS;
    if (before) this.#heard.push(isGap ? { at, partitions: 0, live: 0 } : rowOf(found, before, at));
    if (isGap || at - this.#askedAt > AGAIN_SECONDS) this.#ask(at);
    this.#join(at);
  }

  #forget() {
    [this.#past, this.#heard, this.#before, this.#askedAt] = [[], [], null, -Infinity];
  }

  async #ask(at) {
    this.#askedAt = at;
    try {
      const which = this.partition === null ? "" : `&partition=${this.partition}`;
      const last = this.#past.at(-1)?.at ?? 0;
      const since = last ? `&since=${new Date(last * 1000).toISOString()}` : "";
      this.#tell(rowsOf(await get(`api/v1/last-hour?scope=app${which}${since}`)));
      this.error = null;
    } catch (error) {
      this.error = this.#past.length ? null : error;
    }
    this.isAsked = true;
    this.#join(at);
    this.#draw();
  }

  // What nobody has seen stays a gap, as while no process was there.
  #tell(told) {
    const last = this.#past.at(-1)?.at ?? null;
    const more = told.filter((each) => last === null || each.at > last);
    if (last !== null && more[0]?.at - last > GAP_SECONDS) this.#past.push({ at: last + 1, partitions: 0, live: 0 });
    this.#past.push(...more);
  }

  #join(now) {
    const told = this.#past.at(-1)?.at ?? -Infinity;
    this.#heard = this.#heard.filter((each) => each.at > Math.max(told, now - HOUR_SECONDS));
    this.#past = this.#past.filter((each) => each.at > now - HOUR_SECONDS);
    this.rows = [...this.#past, ...this.#heard];
  }
}

function rowsOf({ first_at: first, every_seconds: every, ...columns }) {
  const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
  const began = Date.parse(first) / 1000;
  return columns.partitions.map((_, index) => ({
    at: began + index * every, ...Object.fromEntries(names.map((name) => [name, columns[name][index]])),
  }));
}

// As api/last_hour.py does it. A partition that moved counts from its next answer on.
function rowOf(found, before, at) {
  let records = 0, commits = 0, commitSeconds = 0, longest = null;
  for (const each of found) {
    const then = before.totals.get(`${each.process_id} ${each.partition}`);
    if (!then) continue;
    records += Math.max(0, each.records_total - then.records);
    const now = each.commits ?? NO_COMMITS;
    const [more, moreSeconds] = ["total", "seconds_total"].map((name) => now[name] - then.commits[name]);
    if (more <= 0 || moreSeconds < 0) continue;
    commits += more;
    commitSeconds += moreSeconds;
    longest = Math.max(longest ?? 0, now.longest_seconds);
  }
  const live = found.filter((each) => each.phase === "live");
  const known = (of) => live.map(of).filter((each) => each !== null);
  const sum = (values) => (values.length ? values.reduce((all, each) => all + each) : null);
  const restores = known(predicted);
  return {
    at, partitions: found.length, live: live.length,
    records_per_second: found.length ? records / (at - before.at) : null,
    commit_seconds: commits ? commitSeconds / commits : null, longest_commit_seconds: longest,
    state_bytes: sum(known((each) => each.state_bytes)), lag: sum(known((each) => each.lag)),
    restore_seconds: restores.length ? Math.max(...restores) : null,
  };
}

const predicted = ({ objective, restore_plan: plan }) => objective?.predicted_seconds ?? plan?.first?.predicted_seconds ?? null;
