// One row per partition, and all that is known of it below.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { repeat } from "./vendor/lit-html/directives/repeat.js";
import { bytes, count, counted, seconds, sentence } from "./format.js";
import { badge, moment, nameOf, phaseOf, table, ways } from "./parts.js";
import { stateOf } from "./fleet.js";
import { plots } from "./plots.js";
import { stages } from "./restores.js";
import { href } from "./routes.js";

const HEADS = [
  ["Partition", ""], ["State", ""], ["Owner", "medium"], ["Since", "medium"], ["Lag", "number"], ["Entries", "number wide"],
  ["Size", "number wide"], ["Batch", "number wide"], ["Last snapshot", "medium"],
];

export function partitions(all, nowMs, page, open) {
  const { only, show } = page;
  const shown = all.partitions.filter((each) => only === "all" || each.level !== "good" || each.partition === open);
  return html`<section aria-labelledby="partitions-title"><div class="head"><h2 id="partitions-title">Partitions</h2>
    <label class="filter">Show <select @change=${(event) => show(event.target.value)}><option value="all" ?selected=${only === "all"}>all (${all.partitions.length})</option>
      <option value="wrong" ?selected=${only === "wrong"}>not healthy (${all.partitions.filter((each) => each.level !== "good").length})</option></select></label></div>
    ${shown.length ? html`<div class="scroll"><table class="partitions"><thead><tr>${HEADS.map(([name, kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>
    <tbody>${repeat(shown, (each) => `${each.process_id} ${each.partition}`, (each) => row(each, nowMs, each.partition === open, page, all))}</tbody></table></div>`
    : html`<p class="empty">${all.partitions.length ? "All are healthy." : "No process has a partition."}</p>`}</section>`;
}

function row(each, nowMs, isOpen, page, all) {
  const id = `partition-${each.partition}`;
  return html`<tr id=${id} class=${isOpen ? "open" : ""}>
      <td><button type="button" class="toggle" aria-expanded=${isOpen} aria-controls="${id}-detail" aria-label="Details of partition ${each.partition}" @click=${() => { location.hash = href("partitions", isOpen ? null : each.partition); }}><span aria-hidden="true">${isOpen ? "▾" : "▸"}</span> ${each.partition}</button></td>
      <td>${badge(each.level, phaseOf(each))}</td><td class="medium owner">${each.owner}${each.owner === each.host ? nothing : html` <small>${each.host}</small>`}</td><td class="medium">${moment(each.since, nowMs)}</td>
      <td class="number">${count(each.lag)}</td>${[count(each.state_entries), bytes(each.state_bytes)].map((size) => html`<td class="number wide">${each.batch === null ? "–" : size}</td>`)}
      <td class="number wide">${count(each.batch)}</td><td class="medium">${each.last_pointed_snapshot_at ? moment(each.last_pointed_snapshot_at, nowMs) : each.restore_plan?.first && !each.restore_plan.first.snapshot_id ? "none yet" : "–"}</td></tr>
    <tr class="detail" id="${id}-detail" ?hidden=${!isOpen}><td colspan=${HEADS.length}>${isOpen ? detail(each, nowMs, page, all) : nothing}</td></tr>`;
}

function detail(each, nowMs, page, all) {
  return html`<div class="facts">
    ${buttons(each, page.acts)}
    ${lastRestore(each, nowMs)}
    ${each.error ? html`<div class="wide"><h3>Error</h3><p class="message">${each.error.kind}: ${each.error.message}</p>${ways(each.error.hint)}</div>` : nothing}
    <div class="wide"><div class="head"><h3>The last hour</h3>${page.span.choice()}</div>${plots(page.hours.of(each.partition), nowMs, page.span, { of: 1, goal: each.objective?.seconds ?? null })}</div>
    <div><h3>Inputs</h3>${table(`Inputs of partition ${each.partition}`, ["Topic", ["Position", "medium"], ["Last stable offset", "medium"], "Lag", ["High watermark", "medium"], "Lag to watermark"], each.inputs.map((input) => [input.topic, ...[input.position, input.end_offset, input.lag, input.high_watermark, input.lag_to_high_watermark].map(count)]), "Not known yet.")}</div>
    <div><h3>Stores</h3>${table(`Stores of partition ${each.partition}`, ["Store", "Entries", "Size", "Largest entry"], each.stores.map((store) => [store.name, count(store.entries), bytes(store.size_bytes), bytes(store.largest_entry_bytes)]), "None yet.")}</div>
    <div><h3>Next restore</h3>${next(each, nowMs)}</div>
    <div><h3>Standbys</h3><p>${standbys(each, all)}</p></div>
    ${each.rejected_proposals.length ? html`<div class="wide"><h3>Rejected proposals</h3>${table(`Rejected proposals of partition ${each.partition}`, ["Offset", "Reason", "Detail", "At"], each.rejected_proposals.map((one) => [one.manifest_offset, one.reason, one.detail, moment(one.at, nowMs)]), "")}</div>` : nothing}
  </div>`;
}

function buttons(each, acts) {
  const isLive = each.phase === "live";
  return html`<div class="wide buttons">
    ${each.phase === "failed" ? html`<button type="button" class="act" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.retry([each.partition])}>Retry …</button>` : nothing}
    <button type="button" title=${acts.whyOff("operator")} ?disabled=${!isLive || acts.isOff("operator")} @click=${() => (each.paused_since ? acts.resume(each.partition) : acts.pause(each.partition))}>${each.paused_since ? "Resume …" : "Pause …"}</button>
    <button type="button" title=${acts.whyOff("operator")} ?disabled=${!isLive || acts.isOff("operator")} @click=${() => acts.snapshot(each.partition)}>Write a snapshot …</button>
    <button type="button" title=${acts.whyOff("operator")} ?disabled=${!isLive || acts.isOff("operator")} @click=${() => acts.drill(each.partition)}>Drill …</button>
    <button type="button" title=${acts.whyOff("admin")} ?disabled=${!isLive || acts.isOff("admin")} @click=${() => acts.adopt(each.partition)}>Adopt a proposed snapshot …</button>
    <a href=${href("history", each.partition)}>History</a></div>`;
}

function lastRestore(each, nowMs) {
  const run = each.restore;
  if (!run) return nothing;
  const from = run.warm ? `from memory (${run.warm})` : run.snapshot ? `from snapshot ${run.snapshot.snapshot_id}` : run.mode || run.finished_at ? "from the beginning" : "nothing is loaded yet";
  return html`<div class="wide"><h3>Last restore</h3>${stages(each.phase, run)}
    <p>${sentence(from)}${run.mode ? html`, by ${run.mode}` : nothing}, ${counted(run.attempts, "attempt")}, ${run.finished_at ? html`ended ${moment(run.finished_at, nowMs)}` : "not ended"}.
    ${run.fallback_reason ? html`<br>Fallback: ${run.fallback_reason}` : nothing}</p>
    <p>${proof(each)}</p></div>`;
}

function next({ restore_plan: plan, objective, drill }, nowMs) {
  const predicted = objective?.predicted_seconds ?? plan?.first?.predicted_seconds ?? null;
  return html`<p>${predicted === null ? "Not known yet." : html`It would take about ${seconds(predicted)}${objective ? html`; the objective is ${seconds(objective.seconds)} ${badge(objective.is_met ? "good" : "warn", objective.is_met ? "met" : "missed")}` : nothing}.`}</p>
    <p>${lastDrill(drill, nowMs)}</p>`;
}

const DRILLS = { running: ["busy", "running"], succeeded: ["good", "the same state"], failed: ["bad", "failed"], given_up: ["past", "given up"] };

function lastDrill(drill, nowMs) {
  if (!drill) return "No drill since this process became its owner.";
  const [level, word] = DRILLS[drill.state];
  const took = drill.seconds === null ? nothing : html`, ${seconds(drill.seconds)} for batch ${count(drill.batch)}`;
  return html`Drill ${moment(drill.finished_at ?? drill.started_at, nowMs)} ${badge(level, word)}${took}${drill.detail ? `: ${drill.detail}` : ""}`;
}

function proof({ proof: found, level, restore }) {
  if (!found) return level === "busy" ? "Proven when it ends." : restore?.finished_at ? nothing : "Not proven: the restore has not finished.";
  return html`${badge(found.equal ? "good" : "bad", found.equal ? "proven" : "differs")} computed <code>${found.computed}</code>, recorded <code>${found.recorded}</code>, ${counted(found.batches_compared, "batch", "batches")} compared on the way.`;
}

function standbys(each, all) {
  const found = all.standbys.filter((one) => one.partition === each.partition);
  const { wanted = 0, why_missing: why } = all.lanes.find((lane) => lane.process.process_id === each.process_id)?.process.copies ?? {};
  const said = wanted ? [`${counted(wanted, "copy is", "copies are")} wanted${why ? `, ${found.length} ${found.length === 1 ? "exists" : "exist"}: ${why}` : ""}. `] : [];
  if (!found.length) return [...said, "None is seen from here."];
  return said.concat(found.map((one) => `${nameOf(one, all.lanes) ?? all.facts.instance_id}: ${stateOf(one)}, batch ${count(one.batch)}, ${counted(one.lag_offsets, "offset")} behind, ${counted(one.digests_compared ?? 0, "digest")} equal to the owner's. `));
}
