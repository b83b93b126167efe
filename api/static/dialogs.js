// The question before anything is done.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { failure } from "./parts.js";

export function confirmation(asked, confirm, cancel) {
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    confirm({ reason: given.get("reason") ?? "", offset: Number(given.get("offset")), name: given.get("name") });
  };
  return html`<form class="ask" aria-labelledby="ask-title" @submit=${submit}><h2 id="ask-title">${asked.title}</h2><p>${asked.text}</p>
    ${asked.name ? html`<p><label for="name">Its name: letters, digits, "." "_" "-"</label><input id="name" name="name" maxlength="200" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" required></p>` : nothing}
    ${asked.typed ? html`<p><label for="typed">Type its name: ${asked.typed}</label><input id="typed" pattern=${asked.typed.replaceAll(".", "\\.")} autocomplete="off" required></p>` : nothing}
    ${asked.reason ? html`<p><label for="reason">Why (kept with it; may be empty)</label><input id="reason" name="reason" maxlength="500" autocomplete="off"></p>` : nothing}
    ${asked.offset ? html`<p><label for="offset">Offset of its manifest in the snapshots topic, which the job has printed</label><input id="offset" name="offset" type="number" min="0" step="1" required></p>` : nothing}
    ${asked.error ? failure(asked.error) : nothing}
    <p class="buttons"><button type="button" @click=${cancel}>Cancel</button> <button class="act" ?disabled=${asked.isBusy}>${asked.label}</button></p></form>`;
}
