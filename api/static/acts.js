// What a person can do here: each act with its question, the role that it needs, and its request.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { placed } from "./format.js";
import { named } from "./model.js";
import { failure } from "./parts.js";
import { act } from "./source.js";

const ROLES = ["viewer", "operator", "admin"];
// A button that is off cannot be pointed at by keyboard or touch: what the role may not do stands in the head, too.
export const MAY = { viewer: "viewer: read only", operator: "operator: cannot adopt or drop" };

export class Acts {
  #page;

  // `page`: whether its answers are fresh, the role of its token, and how it asks and carries out.
  constructor(page) {
    this.#page = page;
  }

  get isFresh() { return this.#page.isFresh; }
  isOff(needed) { return !this.isFresh || !this.#may(needed); }
  whyOff(needed) { return this.#may(needed) ? nothing : `This needs the role ${needed}; the token is of the role ${this.#page.role}.`; }

  #may(needed) {
    const { role } = this.#page;
    return role === null || ROLES.indexOf(role) >= ROLES.indexOf(needed);
  }

  #ask(title, label, text, what, request, fields = {}) {
    this.#page.ask({ title, label, text, ...fields, go: (given) => this.#page.doing(what(given), ...[request(given)].flat()) });
  }

  snapshot(partition) {
    const isAll = partition === null;
    this.#ask(isAll ? "Write snapshots?" : `Write a snapshot of partition ${partition}?`, isAll ? "Write snapshots" : "Write the snapshot",
      `A full snapshot of ${isAll ? "each live partition of the app" : "it"} is written to Kafka. Processing continues.`,
      () => "Snapshot", ({ reason }) => () => act("trigger-snapshot", { ...(isAll ? {} : { partitions: [partition] }), reason }), { reason: true });
  }

  retry(numbers) {
    const which = named(numbers).toLowerCase();
    this.#ask(`Retry ${which}?`, "Retry", "It recovers again from Kafka and resumes with the next record. If the cause is still there, it fails again, and nothing else happens.",
      () => `Retry of ${which}`, () => numbers.map((each) => () => act(`api/v1/partitions/${each}/retry`)));
  }

  pause(partition) {
    this.#ask(`Pause partition ${partition}?`, "Pause", "The current batch is committed. Then nothing is processed until you resume it, even after a restart. It stays live and can be read.",
      () => `Pause of partition ${partition}`, ({ reason }) => () => act(`api/v1/partitions/${partition}/pause`, { reason }), { reason: true });
  }

  resume(partition) {
    this.#ask(`Resume partition ${partition}?`, "Resume", "It resumes with the next record.",
      () => `Resume of partition ${partition}`, () => () => act(`api/v1/partitions/${partition}/resume`));
  }

  drill(partition) {
    this.#ask(`Drill partition ${partition}?`, "Drill",
      "Its owner restores it into a second copy, compares the digest and discards the copy. Processing continues. Meanwhile memory holds the state twice.",
      () => `Drill of partition ${partition}`, () => () => act(`api/v1/partitions/${partition}/drill`));
  }

  drain({ process_id: id, instance_id: name, host }) {
    this.#ask(`Drain ${placed(name || id, host)}?`, "Drain",
      "It hands its partitions over to the other processes, first to those with warm copies. It stays up and takes no partitions until it is undrained or restarted.",
      () => `Drain of ${name || id}`, ({ reason }) => () => act(`api/v1/processes/${encodeURIComponent(id)}/drain`, { reason }), { reason: true });
  }

  undrain({ process_id: id, instance_id: name, host }) {
    this.#ask(`Undrain ${placed(name || id, host)}?`, "Undrain", "The group assigns partitions to it again.",
      () => `Undrain of ${name || id}`, () => () => act(`api/v1/processes/${encodeURIComponent(id)}/undrain`));
  }

  cancel({ id, kind }) {
    this.#ask(`Cancel this ${kind}?`, `Cancel the ${kind}`,
      "Parts that have not begun are dropped, and a drill is abandoned. Parts that have begun to change something are completed.",
      () => `Cancel of the ${kind}`, () => () => act(`api/v1/operations/${encodeURIComponent(id)}`, null, "DELETE"));
  }

  keep() {
    this.#ask("Create a savepoint?", "Create it",
      "The state of each partition after its last committed batch is written to separate topics. Processing continues. Each partition is kept at its own moment.",
      ({ name }) => `Savepoint ${name}`, ({ name, reason }) => () => act("api/v1/savepoints", { name, reason }), { name: true, reason: true });
  }

  drop(name) {
    this.#ask(`Drop savepoint ${name}?`, "Drop it", "Its topics are deleted permanently. Apps that began with it keep their state.",
      () => `Drop of savepoint ${name}`, () => () => act(`api/v1/savepoints/${encodeURIComponent(name)}`, null, "DELETE"), { typed: name });
  }

  redrive() {
    this.#ask("Redrive the dead letters?", "Redrive",
      "Each record that was not sent back before is sent to its input once. If the handler is not fixed, it fails again, and the records come back here.",
      () => "Redrive", ({ reason }) => () => act("api/v1/dead-letters/redrive", { reason }), { reason: true });
  }

  adopt(partition) {
    this.#ask(`Adopt a proposed snapshot of partition ${partition}?`, "Adopt",
      "The owner reads the snapshot that a job has written and hashes every entry. It adopts the snapshot if it equals the state of its batch, and rejects it otherwise. Processing continues.",
      () => `Adoption for partition ${partition}`, ({ offset }) => () => act(`api/v1/partitions/${partition}/adopt`, { manifest_offset: offset }), { offset: true });
  }
}

// The question before anything is done.
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
