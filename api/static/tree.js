// A value of the state as a tree: what is short stands on its line, and what is deep is folded.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { counted } from "./format.js";
import { stored } from "./parts.js";

const SHORT = 48;
const PREVIEW = 90;

// An integer that JavaScript cannot hold is written as it came.
const isLeaf = (value) => value === null || typeof value !== "object" || JSON.isRawJSON?.(value);

// `unfolded`: how many levels are open; `name`: of the field or item.
export function tree(value, unfolded = 2, name = null) {
  const text = JSON.stringify(value);
  const label = name === null ? nothing : html`<span class="name">${name}</span> `;
  if (isLeaf(value) || text.length <= SHORT) return html`${label}${stored(text)}`;
  const items = Object.entries(value);
  return html`<details class="tree" ?open=${unfolded > 0}><summary>${label}<small>${Array.isArray(value) ? counted(items.length, "item") : counted(items.length, "field")}</small>
    <span class="preview">${stored(text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text)}</span></summary>
    <ul>${items.map(([each, item]) => html`<li>${tree(item, unfolded - 1, each)}</li>`)}</ul></details>`;
}
