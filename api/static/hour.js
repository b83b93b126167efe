// The last hour of the app, or of a partition, as the processes remember it.

import { get } from "./source.js";

const AGAIN_MS = 10_000; // a row is of ten seconds

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

  // Call with each answer of the process; `open`: the partitions whose details are shown.
  look(open) {
    for (const number of this.#open.keys()) if (!open.has(number)) this.#open.delete(number);
    for (const each of [this.app, ...this.#open.values()]) each.look();
  }
}

class Hour {
  rows = [];
  isAsked = false;
  error = null;
  #askedAt = -Infinity; // by a clock that nobody sets
  #draw;

  constructor(partition, draw) {
    this.partition = partition;
    this.#draw = draw;
  }

  async look() {
    if (performance.now() - this.#askedAt < AGAIN_MS) return;
    this.#askedAt = performance.now();
    try {
      this.rows = rowsOf(await get(`api/v1/last-hour${this.partition === null ? "" : `?partition=${this.partition}`}`));
      this.error = null;
    } catch (error) {
      this.error = this.rows.length ? null : error;
    }
    this.isAsked = true;
    this.#draw();
  }
}

function rowsOf({ first_at: first, every_seconds: every, ...columns }) {
  const names = Object.keys(columns).filter((name) => Array.isArray(columns[name]));
  const began = Date.parse(first) / 1000;
  return columns.partitions.map((_, index) => ({
    at: began + index * every, ...Object.fromEntries(names.map((name) => [name, columns[name][index]])),
  }));
}
