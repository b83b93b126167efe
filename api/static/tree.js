// A value of the state as a tree: what is short stands on its line, and what is deep is folded. What is folded is not
// built, and of a long list only the first items are.

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { count, counted } from "./format.js";
import { stored } from "./parts.js";

const SHORT = 48;
const PREVIEW = 90;
const ITEMS = 100;
const FEW = 10; // the items of a longer list are folded

// An integer that JavaScript cannot hold is written as it came.
const isLeaf = (value) => value === null || typeof value !== "object" || JSON.isRawJSON?.(value);

// The first characters of a value in JSON: all of it, or more than `most`.
function preview(value, most) {
  if (isLeaf(value)) return JSON.stringify(typeof value === "string" ? value.slice(0, most + 1) : value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  let text = open;
  for (const name in value) {
    if (text.length > most) return text;
    text += `${text === open ? "" : ","}${Array.isArray(value) ? "" : `${JSON.stringify(name)}:`}`;
    text += preview(value[name], Math.max(most - text.length, 0));
  }
  return text + close;
}

// `unfolded`: how many levels are open; `name`: of the field or item.
export function tree(value, unfolded = 2, name = null) {
  const text = isLeaf(value) ? JSON.stringify(value) : preview(value, PREVIEW);
  if (isLeaf(value) || text.length <= SHORT) return html`${label(name)}${stored(text)}`;
  return html`<value-tree .shown=${{ value, unfolded, name, text }}></value-tree>`;
}

const label = (name) => (name === null ? nothing : html`<span class="name">${name}</span> `);

class ValueTree extends HTMLElement {
  #shown = null;
  #isOpen = false;

  set shown(shown) {
    if (shown.value === this.#shown?.value) return;
    this.#shown = shown;
    this.#isOpen = shown.unfolded > 0;
    this.#draw();
  }

  #draw() {
    const { value, unfolded, name: own, text } = this.#shown;
    const names = Object.keys(value);
    const isList = Array.isArray(value);
    const item = (name) => html`<li>${tree(value[name], names.length > FEW ? 0 : unfolded - 1, name)}</li>`;
    render(html`<details class="tree" ?open=${this.#isOpen} @toggle=${(event) => this.#toggled(event.target.open)}><summary>${label(own)}<small>${counted(names.length, isList ? "item" : "field")}</small>
      <span class="preview">${stored(text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text)}</span></summary>
      ${this.#isOpen ? html`<ul>${names.slice(0, ITEMS).map(item)}${names.length > ITEMS ? html`<li>… ${count(names.length - ITEMS)} more</li>` : nothing}</ul>` : nothing}</details>`, this);
  }

  #toggled(isOpen) {
    if (isOpen === this.#isOpen) return;
    this.#isOpen = isOpen;
    this.#draw();
  }
}
customElements.define("value-tree", ValueTree);
