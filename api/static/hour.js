// The last hour of the app, or of a partition, as the processes remember it.

import { get } from "./source.js";

const AGAIN_MS = 10_000; // a row is of ten seconds

// One per page: the app, and the partition whose details are shown.
export class Hours {
  #open = null;
  #draw;

  constructor(draw) {
    this.#draw = draw;
    this.app = new Hour(null, draw);
  }

  of(number) {
    if (this.#open?.partition !== number) this.#open = new Hour(number, this.#draw);
    return this.#open;
  }

  // Call with each answer of the process; `number`: of the partition whose details are shown, or null.
  look(number) {
    this.app.look();
    if (number !== null) this.of(number).look();
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
