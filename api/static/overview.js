// The app at a glance: what is wrong, what is being restored, the way of the records, the processes, the last hour.

import { html } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { processes } from "./fleet.js";
import { problemCards } from "./now.js";
import { plots } from "./plots.js";
import { restores } from "./restores.js";
import { topology } from "./topology.js";
import { withoutLag } from "./verdict.js";

export function overview(all, nowMs, page) {
  const restored = page.watch.shown(all);
  // A takeover is watched in the picture of the processes: while anything is wrong, it comes first.
  return html`${problemCards(all, nowMs, page)}
    ${restores(restored, nowMs, page)}
    ${repeat(all.problems.length || restored.length ? ["processes", "topology"] : ["topology", "processes"], (name) => name, (name) => (name === "topology" ? topology(all, page.rates, nowMs) : processes(all, nowMs, page.acts)))}
    ${lastHour(all, nowMs, page)}`;
}

function lastHour({ facts, partitions, missing }, nowMs, page) {
  const goals = partitions.map((each) => each.objective?.seconds).filter(Boolean);
  return html`<section aria-labelledby="plots-title"><div class="head"><h2 id="plots-title">The last hour</h2>${page.span.choice()}</div>
    ${plots(page.hours.app, nowMs, page.span, { of: facts.partition_count ?? 0, without: withoutLag({ partitions, missing }), goal: goals.length ? Math.min(...goals) : null })}</section>`;
}
