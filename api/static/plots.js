// The last hour of the app, or of a partition: as the processes remember it, and in small plots, by uPlot.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { bytes, count, latency, seconds } from "./format.js";
import { moment } from "./parts.js";
import { get } from "./source.js";

const records = (n) => count(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));
const MEASURES = [
  { title: "Records per second", columns: ["records_per_second"], write: records },
  { title: "Commit", columns: ["commit_seconds", "longest_commit_seconds"], write: latency, isLog: true },
  { title: "Lag, in records", columns: ["lag"], write: records, leavesOut: true },
  { title: "Size of the state", columns: ["state_bytes"], write: bytes, least: 1000 },
  { title: "Longest restore, predicted", one: "Restore, predicted", columns: ["restore_seconds"], write: seconds, hasGoal: true },
];
const ROW_SECONDS = 10;
const SHADE_SECONDS = 15;
const NO_ROW = { partitions: 0, live: 0 };
const SPANS = [[300, "5 minutes"], [900, "15 minutes"], [3600, "1 hour"]];

// How much of the hour all plots show.
export class Span {
  seconds = 3600;
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  choice() {
    const choose = (event) => { this.seconds = Number(event.target.value); this.#draw(); };
    return html`<label class="filter">Range <select @change=${choose}>${SPANS.map(([value, name]) => html`<option value=${value} ?selected=${value === this.seconds}>${name}</option>`)}</select></label>`;
  }
}

// `of`: how many partitions there are of what is drawn; `without`: those of which no lag is known, in words; `goal`: the
// objective in seconds, or null.
export function plots(hour, nowMs, span, { of, goal, without = "" }) {
  const rows = within(hour.rows, span);
  const isShaded = rows.some((row) => isDown(row, of));
  return html`<div class="plots">${MEASURES.map((measure) => plot(measure, { rows, partition: hour.partition }, span, { of, goal: measure.hasGoal ? goal : null, without: measure.leavesOut ? without : "" }))}</div>
    <p class="key">${memory(hour, nowMs)}${isShaded ? html` <span><i class="shade"></i> ${hour.partition === null ? "not all partitions were known to be live" : "it was not live"}</span>` : nothing}
    ${goal === null ? nothing : html` <span><i class="goal"></i> the objective, ${seconds(goal)}</span>`}</p>`;
}

function memory({ rows, isAsked, error }, nowMs) {
  if (error) return html`<span>What was before this page was opened is not known: ${error.status === 404 ? "the process that answers is of a version that does not remember it" : error.message}.</span>`;
  if (!isAsked) return html`<span>Loading earlier values …</span>`;
  const first = rows.find((row) => row.partitions);
  if (!first) return html`<span>No data yet.</span>`;
  return nowMs / 1000 - first.at > 3580 ? nothing : html`<span>Known since ${moment(new Date(first.at * 1000).toISOString(), nowMs, false)}: this process does not remember what was before.</span>`;
}

function plot({ title, one, columns, write, isLog = false, least = 1 }, { rows, partition }, span, { of, goal, without }) {
  const name = partition === null ? title : (one ?? title);
  const latest = valueOf(rows.at(-1), columns, write) || "–";
  const part = (latest !== "–" && without) || (partition === null && isDown(rows.at(-1) ?? NO_ROW, of) ? `${rows.at(-1).live} of ${of} live at ${new Date(rows.at(-1).at * 1000).toLocaleTimeString("en-GB")}` : "");
  const most = Math.max(...rows.map((row) => row[columns.at(-1)] ?? -Infinity));
  const label = `${name}: now ${latest === "–" ? "not known" : latest}${part && ` (${part})`}${Number.isFinite(most) ? `, at most ${write(most)} in this range` : ""}${goal === null ? "" : `, the objective is ${write(goal)}`}`;
  return html`<figure><figcaption>${name} <strong>${latest}</strong>${part ? html` <small>${part}</small>` : nothing}</figcaption>
    <hour-plot tabindex="0" role="img" aria-label=${label} .shown=${{ rows, columns, write, isLog, least, of, goal, span: span.seconds }}></hour-plot></figure>`;
}

const within = (rows, { seconds }) => rows.slice(-Math.ceil(seconds / ROW_SECONDS));

// The value of a row, or the mean and the longest.
const valueOf = (row, columns, write) => columns.map((column) => row?.[column] ?? null).filter((each) => each !== null).map(write).join(", longest ");

const isDown = (row, of) => row.partitions > 0 && row.live < of;

// From when to when it was down: a row is of the time since the one before.
function downs({ rows, of }) {
  const found = [];
  rows.forEach((row, index) => {
    if (!isDown(row, of)) return;
    const from = Math.max(rows[index - 1]?.at ?? row.at, row.at - SHADE_SECONDS);
    if (found.at(-1)?.[1] >= from) found.at(-1)[1] = row.at;
    else found.push([from, row.at]);
  });
  return found;
}

// ---- the element

const HEIGHT = 150;
const SHORTEST_SECONDS = 300;
const dark = matchMedia("(prefers-color-scheme: dark)");

class HourPlot extends HTMLElement {
  #shown = { rows: [], columns: [], write: String, isLog: false, least: 1, of: 0, goal: null, span: 0 };
  #plot = null;
  #said = document.createElement("span");
  #resized = new ResizeObserver(() => this.#plot?.setSize({ width: this.clientWidth, height: HEIGHT }));
  #remake = () => this.#make();

  set shown(shown) {
    const before = this.#shown;
    this.#shown = shown;
    if (before.rows.at(-1) !== shown.rows.at(-1) || before.goal !== shown.goal || before.span !== shown.span) this.#draw();
  }

  connectedCallback() {
    this.#said.className = "at";
    this.#said.setAttribute("aria-live", "polite");
    this.onkeydown = (event) => this.#step(event);
    dark.addEventListener("change", this.#remake);
    this.#resized.observe(this);
    this.#make();
  }

  disconnectedCallback() {
    dark.removeEventListener("change", this.#remake);
    this.#resized.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  #make() {
    this.#plot?.destroy();
    this.#plot = new uPlot(options(this.clientWidth || 300, this.#shown, {
      times: () => this.#times(), goal: () => this.#shown.goal, shade: (plot) => this.#shade(plot), line: (plot) => this.#line(plot), pointed: (plot) => this.#say(plot),
    }), null, this);
    this.append(this.#said);
    this.#draw();
  }

  #draw() {
    const { rows, columns } = this.#shown;
    this.#plot?.setData([rows.map((row) => row.at), ...columns.map((column) => rows.map((row) => row[column] ?? null))]);
  }

  #times() {
    const { rows } = this.#shown;
    const last = rows.at(-1)?.at ?? Date.now() / 1000;
    return [Math.min(rows.find((row) => row.partitions)?.at ?? last, last - SHORTEST_SECONDS), last];
  }

  #shade({ ctx, bbox, valToPos }) {
    ctx.save(); // uPlot keeps in mind which colours it has set
    ctx.fillStyle = color("--shade");
    for (const times of downs(this.#shown)) {
      const [left, right] = times.map((at) => Math.round(valToPos(at, "x", true)));
      ctx.fillRect(Math.max(bbox.left, left), bbox.top, Math.max(right - left, 3 * devicePixelRatio), bbox.height);
    }
    ctx.restore();
  }

  #line({ ctx, bbox, valToPos }) {
    const { goal } = this.#shown;
    if (goal === null) return;
    const y = valToPos(goal, "y", true);
    ctx.save();
    ctx.strokeStyle = color("--warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  #say({ cursor }) {
    const { rows, columns, write } = this.#shown;
    const row = rows[cursor.idx ?? -1];
    const value = valueOf(row, columns, write) || (row?.partitions ? "–" : "not known");
    this.#said.textContent = row ? `${new Date(row.at * 1000).toLocaleTimeString("en-GB")}  ${value}` : "";
  }

  #step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const { rows } = this.#shown;
    if (!by || !rows.length) return;
    event.preventDefault();
    const index = Math.min(Math.max((this.#plot.cursor.idx ?? rows.length) + by, 0), rows.length - 1);
    this.#plot.setCursor({ left: this.#plot.valToPos(rows[index].at, "x"), top: 10 });
  }
}
customElements.define("hour-plot", HourPlot);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(width, { columns, write, isLog, least }, { times, goal, shade, line, pointed }) {
  const mark = color("--mark");
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, DejaVu Sans, sans-serif" };
  const y = isLog ? { distr: 3, range: (_plot, low, high) => [power(low, Math.floor), power(high, Math.ceil)] }
    : { range: (_plot, _low, high) => [0, Math.max(high ?? 0, goal() ?? 0) * 1.15 || least] };
  return {
    width, height: HEIGHT, padding: [10, 18, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { range: times }, y },
    axes: [
      { ...axis, size: 22, space: 60, incrs: [60, 120, 300, 600, 900], grid: { show: false }, values: (plot, at) => at.map((each) => (plot.valToPos(each, "x") < 16 ? "" : new Date(each * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }))) }, // at the left edge it would touch the other axis
      { ...axis, size: 54, space: 28, ...(isLog ? { splits: (_plot, _axis, low, high) => powers(low, high) } : {}), values: (_, at) => at.map((each) => (each === null ? "" : each ? write(each) : "0")) }, // null: there is no room for it
    ],
    series: [{}, ...columns.map((_, index) => ({
      ...(index ? { stroke: color("--quiet"), width: 1 } : { stroke: mark, width: 1.5, fill: `${mark}22` }),
      points: { show: true, size: 4, width: 0, fill: color(index ? "--quiet" : "--mark"), filter: alone },
    }))],
    hooks: { drawClear: [shade], draw: [line], setCursor: [pointed] },
  };
}

// From a power of ten to another one, so that one long time among many does not hide them.
const power = (value, rounded) => 10 ** rounded(Math.log10(value || 0.01) + (rounded === Math.ceil ? 1e-9 : -1e-9));
const powers = (low, high) => Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, step) => low * 10 ** step);

// A line has no length between two gaps: there it is a point.
function alone(plot, series) {
  const values = plot.data[series];
  const isGap = (index) => values[index] === null || values[index] === undefined;
  return [...values.keys()].filter((index) => !isGap(index) && isGap(index - 1) && isGap(index + 1));
}

// ---- what is remembered

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
  #askedAt = -Infinity; // monotonic
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
