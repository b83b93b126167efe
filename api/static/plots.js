// Throughput, lag, size and the next restore over the time that the page is open, by uPlot.

import { bytes, count, seconds } from "./format.js";

const KEPT = 1800; // an hour of answers
const GAP_SECONDS = 15;
export const SHOWN = [
  { name: "records", title: "Records per second", write: (n) => count(Math.round(n)) },
  { name: "lag", title: "Lag, in records", write: (n) => count(Math.round(n)) },
  { name: "size", title: "Size of the state", write: bytes },
  { name: "restore", title: "Longest restore, predicted", write: seconds },
];

export class Plots {
  #times = [];
  #values = { records: [], lag: [], size: [], restore: [] };
  #before = null;
  #drawn = [];

  // Take one answer; a partition that moved counts from its next answer on.
  add(all, nowMs) {
    const partitions = all.filter((each) => each.level !== "unknown");
    const totals = new Map(partitions.map((each) => [`${each.process_id} ${each.partition}`, each.records_total]));
    const at = nowMs / 1000;
    const before = this.#before;
    this.#before = { at, totals };
    if (!before || at - before.at < 0.5) return;
    let applied = 0;
    for (const [key, total] of totals) applied += Math.max(0, total - (before.totals.get(key) ?? total));
    const isGap = at - before.at > GAP_SECONDS;
    const sum = (of) => partitions.reduce((all, each) => all + of(each), 0);
    this.#push(at, {
      records: isGap ? null : applied / (at - before.at),
      lag: sum((each) => each.lag ?? 0),
      size: sum((each) => each.state_bytes),
      restore: Math.max(0, ...partitions.map((each) => each.objective?.predicted_seconds ?? each.restore_plan?.first?.predicted_seconds ?? 0)),
    });
    this.draw();
  }

  #push(at, values) {
    this.#times.push(at);
    for (const { name } of SHOWN) this.#values[name].push(values[name]);
    if (this.#times.length <= KEPT) return;
    this.#times.shift();
    for (const { name } of SHOWN) this.#values[name].shift();
  }

  get latest() {
    const last = this.#times.length - 1;
    return last < 0 ? null : Object.fromEntries(SHOWN.map(({ name, write }) => [name, write(this.#values[name][last] ?? 0)]));
  }

  // Make the plots in these elements, by name; again after a change of theme.
  show(elements) {
    for (const { plot } of this.#drawn) plot.destroy();
    this.#drawn = SHOWN.map((each) => ({ ...each, element: elements[each.name] })).map((each) => ({ ...each, plot: made(each) }));
    this.draw();
  }

  draw() {
    if (this.#times.length < 2) return;
    for (const { name, plot, element } of this.#drawn) {
      if (element.clientWidth && element.clientWidth !== plot.width) plot.setSize({ width: element.clientWidth, height: HEIGHT });
      plot.setData([this.#times, this.#values[name]]);
    }
  }
}

const HEIGHT = 120;

function made({ element, write }) {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, mark] = ["--quiet", "--line", "--mark"].map((name) => style.getPropertyValue(name).trim());
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, DejaVu Sans, sans-serif" };
  const options = {
    width: element.clientWidth || 300, height: HEIGHT, legend: { show: false }, cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_plot, _low, high) => [0, Math.max(high ?? 0, 4) * 1.15] } },
    axes: [
      { ...axis, space: 70, values: (_, at) => at.map((each) => new Date(each * 1000).toLocaleTimeString("en-GB")) },
      { ...axis, size: 54, space: 32, values: (_, at) => at.map(write) },
    ],
    series: [{}, { stroke: mark, width: 2, fill: `${mark}22`, points: { show: false } }],
  };
  return new uPlot(options, null, element);
}
