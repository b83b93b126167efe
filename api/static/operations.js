// What was asked for, here or by a command, and what became of it, newest first.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { named } from "./model.js";
import { STATE_LEVELS, badge, few, fromProcess, moment, section, table } from "./parts.js";

const CANCELLABLE = ["snapshot", "retry", "drill", "drain", "savepoint"];

export function operations({ answer, lanes }, nowMs, page) {
  const [items, more] = few(answer.operations.items, "operations", page);
  const rows = items.map((each) => [
    html`${each.kind}${fromProcess(each, lanes)}`, badge(STATE_LEVELS[each.state] ?? "unknown", each.state), moment(each.created_at, nowMs),
    html`<span class="free">${each.reason || "–"}</span>`, html`<small>${outcomes(each.parts)}</small>${cancel(each, page.acts)}`,
  ]);
  return section("operations", "Operations", nothing, html`${table("Operations", ["What", "State", ["Begun", "medium"], ["Reason", "medium"], "Result"], rows, "None since the process started.")}${more}`);
}

function cancel(each, acts) {
  if (!CANCELLABLE.includes(each.kind) || !each.parts.some((part) => part.state === "pending")) return nothing;
  return html`<br><button type="button" title=${acts.whyOff("operator")} ?disabled=${acts.isOff("operator")} @click=${() => acts.cancel(each)}>Cancel the ${each.kind} …</button>`;
}

// Partitions by what became of them, with the first detail.
function outcomes(parts) {
  const states = [...new Set(parts.map((each) => each.state))];
  return states.map((state) => {
    const those = parts.filter((each) => each.state === state);
    const detail = those.find((each) => each.detail)?.detail;
    return html`<span class="outcome">${named(those.map((each) => each.partition))}: ${state}${detail ? ` (${detail})` : ""}</span>`;
  });
}
