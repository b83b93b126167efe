// The way of the records through the app: inputs, handlers, state, outputs, with rates and lag.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { ago, bytes, count, counted, latency, perSecond } from "./format.js";
import { isKnown } from "./model.js";
import { badge } from "./parts.js";
import { href } from "./routes.js";
import { withoutLag } from "./verdict.js";

const INTERNAL = ["_timers", "_periods", "_calls"];

export function topology(all, rates, nowMs) {
  const declared = all.facts.topology;
  if (!declared) return nothing; // an older version does not say it
  const nodes = { inputs: inputs(all, declared, rates), outputs: outputs(all, declared, rates) };
  const edges = [
    ...nodes.inputs.flatMap(({ id, rate }, index) => [{ from: id, to: `handler ${index}`, rate }, { from: `handler ${index}`, to: "state", rate }]),
    ...nodes.outputs.map(({ id, rate }) => ({ from: "state", to: id, rate })),
  ];
  return html`<section aria-labelledby="topology-title"><h2 id="topology-title">Topology</h2>
    <div class="topology"><flow-lines .edges=${edges}></flow-lines>
      ${column("Inputs", nodes.inputs.map(({ id, node }) => box(id, node)))}
      ${column("Handlers", nodes.inputs.map((each, index) => box(`handler ${index}`, handler(each, all, rates))))}
      ${column("State", html`${box("state", state(all, nowMs))}`)}
      ${column(html`Outputs ${declared.outputs.length ? figure(perSecond(rates.of("outputs_total")), "records/s") : nothing}`, nodes.outputs.map(({ id, node }) => box(id, node)))}</div></section>`;
}

const column = (name, nodes) => html`<div class="column"><h3>${name}</h3>${nodes}</div>`;
const box = (id, content) => html`<div class="node" data-node=${id}>${content}</div>`;
const figure = (value, unit) => html`<span class="figure"><strong>${value}</strong> ${unit}</span>`;

// The lag of an input is that of all partitions, so it is not known while one of them is not live.
function inputs({ partitions, missing }, { inputs: declared }, rates) {
  const all = partitions.flatMap((each) => each.inputs);
  const topics = new Set([...all.map((each) => each.topic), ...partitions.map(failedTopic).filter(Boolean)]);
  const owners = new Map([...topics].map((topic) => [topic, declaration(declared, topic)]));
  const isWhole = !missing.length && partitions.every((each) => each.phase === "live" && isKnown(each));
  const without = isWhole ? nothing : withoutLag({ partitions, missing });
  return declared.map((input) => {
    const { topic, handler: name, is_internal: isInternal } = input;
    const read = [...topics].filter((each) => owners.get(each) === input);
    const lag = isWhole ? sum(all.filter((each) => read.includes(each.topic)).map((each) => each.lag)) : null;
    const rate = sum(read.map((each) => rates.of(`input ${each}`)));
    return { id: `input ${topic}`, read, name, rate, node: html`<code>${topic}</code>${isInternal ? html` <small>internal</small>` : nothing}
      <p title=${without}>${figure(perSecond(rate), "offsets/s")} ${figure(count(lag), "lag")}</p>` };
  });
}

// The input that a topic belongs to: that of its name, or else the first pattern that matches. A pattern that only
// Python can read is taken to match what no other one does. "rates/2" is a partition of a broadcast table.
function declaration(declared, input) {
  const [topic] = input.split("/");
  const patterns = declared.filter((each) => /[^\w.-]/.test(each.topic));
  const matches = ({ topic: pattern }) => {
    try {
      return new RegExp(`^(?:${pattern})$`, "u").test(topic);
    } catch {
      return null;
    }
  };
  return declared.find((each) => each.topic === topic) ?? patterns.find(matches) ?? patterns.find((each) => matches(each) === null) ?? declared.find(matches);
}

const failedTopic = ({ error }) => error?.record_id?.replace(/-\d+-\d+$/, "");

const sum = (values) => (values.length && !values.includes(null) ? values.reduce((a, b) => a + b, 0) : null);

function handler({ read, name, rate }, { partitions }, rates) {
  const failed = partitions.filter((each) => read.includes(failedTopic(each)));
  const [records, seconds] = ["handled_total", "handler_seconds_total"].map((each) => sum(read.map((topic) => rates.of(`${each} ${topic}`))));
  return html`<code>${name || "handler"}</code>
    <p>${records ? figure(latency(seconds / records), "per record") : figure(perSecond(rate), "offsets/s")}
    ${failed.length ? html`<a href=${href("partitions", failed[0].partition)}>${badge("bad", counted(failed.length, "failure"))}</a>` : html`<span class="figure">no failure</span>`}</p>`;
}

function state({ partitions, facts }, nowMs) {
  const stores = new Map();
  for (const { name, entries, size_bytes: size } of partitions.flatMap((each) => each.stores)) {
    const found = stores.get(name) ?? { entries: 0, size: 0 };
    stores.set(name, { entries: found.entries + entries, size: found.size + size });
  }
  const shown = [...stores].filter(([name]) => !INTERNAL.includes(name));
  const timers = partitions.reduce((all, each) => all + each.timers_pending, 0);
  return html`<ul class="stores">
    ${shown.map(([name, { entries, size }]) => html`<li><a href="#state">${name}</a> <span>${count(entries)} <small>${bytes(size)}</small></span></li>`)}
    ${shown.length ? nothing : html`<li class="empty">no store yet</li>`}
    ${facts.topology.timers.length ? html`<li>timers <span>${count(timers)} <small>pending</small></span></li>` : nothing}
    ${facts.topology.calls.map((name) => call(name, partitions, nowMs))}</ul>`;
}

function call(name, partitions, nowMs) {
  const found = partitions.flatMap((each) => each.calls).filter((each) => each.name === name);
  const oldest = found.map((each) => each.oldest_at).filter(Boolean).sort()[0];
  return html`<li>call ${name} <span>${count(found.reduce((all, each) => all + each.pending, 0))} <small>pending${oldest ? html`, oldest ${ago(oldest, nowMs)}` : nothing}</small>
    ${found.some((each) => each.circuit_open) ? badge("bad", "circuit open") : nothing}</span></li>`;
}

function outputs({ partitions }, { outputs: declared, inputs: read }, rates) {
  const skipped = partitions.reduce((all, each) => all + each.skipped_total, 0);
  const [rate, lost] = [rates.of("outputs_total"), rates.of("skipped_total")];
  const internal = new Set(read.filter((each) => each.is_internal).map((each) => each.topic));
  const nodes = declared.map((topic) => ({ id: `output ${topic}`, rate, node: html`<code>${topic}</code>${internal.has(topic) ? html` <small>internal</small>` : nothing}` }));
  if (skipped) nodes.push({ id: "dead letters", rate: lost, node: html`<a href="#dead-letters">dead letters</a><p>${figure(count(skipped), "since the processes started")}</p>` });
  return nodes;
}

// ---- the lines between the nodes: what flows is a dashed line that moves

const NAMESPACE = "http://www.w3.org/2000/svg";

class FlowLines extends HTMLElement {
  #edges = [];
  #svg = document.createElementNS(NAMESPACE, "svg");
  #resized = new ResizeObserver(() => this.#draw());

  // Each edge: the nodes that it joins, and the rate of what flows (null: not known).
  set edges(edges) {
    this.#edges = edges;
    this.#draw();
  }

  connectedCallback() {
    this.setAttribute("aria-hidden", "true");
    this.append(this.#svg);
    this.#resized.observe(this.parentElement);
  }

  disconnectedCallback() {
    this.#resized.disconnect();
  }

  #draw() {
    if (!this.isConnected) return;
    const origin = this.getBoundingClientRect();
    const nodes = new Map([...this.parentElement.querySelectorAll("[data-node]")].map((each) => [each.dataset.node, each.getBoundingClientRect()]));
    const lines = this.#edges.filter(({ from, to }) => nodes.has(from) && nodes.has(to));
    while (this.#svg.childElementCount > lines.length) this.#svg.lastElementChild.remove();
    while (this.#svg.childElementCount < lines.length) this.#svg.append(document.createElementNS(NAMESPACE, "path"));
    lines.forEach(({ from, to, rate }, index) => {
      const [a, b] = [nodes.get(from), nodes.get(to)];
      const [x, y] = [a.right - origin.left, a.top + a.height / 2 - origin.top];
      const [toX, toY] = [b.left - origin.left, b.top + b.height / 2 - origin.top];
      const bend = (toX - x) / 2;
      const path = this.#svg.children[index];
      path.setAttribute("d", `M${x} ${y} C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`);
      path.setAttribute("class", rate ? "flows" : "");
    });
  }
}
customElements.define("flow-lines", FlowLines);
