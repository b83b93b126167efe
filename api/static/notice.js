// What became of the last thing that was done here, in the corner: a success goes by itself, a failure stays.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { badge, instructions } from "./parts.js";
import { Refused, get } from "./source.js";

const NOTICE_MS = 20_000;
const ASK_AGAIN_MS = 2_000;

export class Notice {
  #now = null;
  #draw;

  constructor(draw) {
    this.#draw = draw;
  }

  begun(what, operations) {
    this.#now = { what, id: operations.map((each) => each.id).join("+"), state: operations[0].state, endedAt: null };
  }

  failed(what, error) {
    this.#now = { what, error };
  }

  shown(all) {
    if (!this.#now) return nothing;
    const { what, id, state: was, error, answer } = this.#now;
    if (error) return this.#noticed("bad", what, html` ${error.message}${error.hint ? html` ${instructions(error.hint)}` : nothing}`);
    // One id joins those that several processes have of it.
    const listed = id.split("+").map((one) => all.answer.operations.items.find((each) => each.id === one));
    const isOld = listed.includes(undefined);
    if (isOld && !this.#now.endedAt) this.#lookUp(this.#now);
    const found = isOld ? [answer] : listed;
    const states = found.map((each) => each?.state ?? was);
    const state = ["running", "failed", "cancelled"].find((each) => states.includes(each)) ?? states[0];
    const details = found.flatMap((each) => each?.parts ?? []).map((each) => each.detail).filter(Boolean);
    const level = { succeeded: "good", failed: "bad", cancelled: "past" }[state] ?? "busy";
    const isDone = ["good", "past"].includes(level);
    if (isDone) this.#now.endedAt ??= Date.now();
    if (isDone && Date.now() - this.#now.endedAt > NOTICE_MS) return nothing;
    return this.#noticed(level, `${what}: ${state}`, details.length ? html` ${details[0]}` : nothing);
  }

  #noticed(level, word, more) {
    const close = () => { this.#now = null; this.#draw(); };
    return html`<p class="notice ${level}" role="status"><span>${badge(level, word)}${more}</span><button type="button" aria-label="Close this message" @click=${close}>✕</button></p>`;
  }

  // The status lists the last 50 operations: an older one is asked for by its id, while this page is drawn each second.
  async #lookUp(notice) {
    if (notice.isAsked) return;
    notice.isAsked = true;
    try {
      notice.answer = await get(`api/v1/operations/${encodeURIComponent(notice.id)}`);
    } catch (error) {
      if (error instanceof Refused) notice.error = error;
    }
    setTimeout(() => { notice.isAsked = false; }, ASK_AGAIN_MS);
  }
}
