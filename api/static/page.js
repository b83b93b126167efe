// The state of the page, and what the user does.

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { placed, zone } from "./format.js";
import { partitions as rows } from "./detail.js";
import { confirmation } from "./dialogs.js";
import { entries } from "./entries.js";
import { map, restores } from "./fleet.js";
import { Histories } from "./history.js";
import { Hours } from "./hour.js";
import { lists } from "./lists.js";
import { connection, named, picture } from "./model.js";
import { band, problemCards, spoken } from "./now.js";
import { badge, instructions, moment } from "./parts.js";
import { plots } from "./plots.js";
import { Savepoints, savepoints } from "./savepoints.js";
import { Refused, act, follow, get, token } from "./source.js";
import { withoutLag } from "./verdict.js";

const state = {
  heardAt: null, told: null, refused: null, lost: null, offsetMs: 0, role: null,
  only: "all", open: new Set(), whole: new Set(), dialog: null, notice: null, tokenWas: "",
  seen: new Map(), // when this page saw a problem first, by its key
};
const hours = new Hours(draw);
const kept = new Savepoints(draw);
const root = document.getElementById("page");
const dialog = document.createElement("dialog");
document.body.append(dialog);
root.replaceChildren();

const NOTICE_MS = 20_000; // of a success; a failure stays until it is closed
const ASK_AGAIN_MS = 2_000;

const serverNow = () => Date.now() + state.offsetMs;

// ---- what comes

const askNow = follow(({ told, refused = null, lost = null, offsetMs = state.offsetMs, role = state.role }) => {
  Object.assign(state, { refused, lost, offsetMs, role });
  if (refused?.status === 401) {
    state.tokenWas = token.get() ? (state.heardAt === null ? "was refused." : "is not accepted any more: it has expired, or was withdrawn.") : state.tokenWas;
    token.forget();
  }
  if (told && !refused) {
    Object.assign(state, { told, heardAt: Date.now(), tokenWas: "" });
    const { partitions, problems } = picture(told, serverNow());
    state.seen = new Map(problems.map(({ key }) => [key, state.seen.get(key) ?? new Date(serverNow()).toISOString()]));
    hours.look(state.open);
  }
  draw();
});
setInterval(draw, 1000);

// ---- what is done

async function doing(what, ...requests) {
  const answers = await Promise.allSettled(requests.map((request) => request()));
  const begun = answers.filter((each) => each.status === "fulfilled").map((each) => each.value);
  if (begun.length) state.notice = { what, id: begun.map((each) => each.id).join("+"), state: begun[0].state, endedAt: null };
  askNow();
  const refused = answers.filter((each) => each.status === "rejected").map((each) => each.reason);
  if (refused.length) throw unsaid(refused, begun.length);
}

// The refusals of one question, as one. What was begun all the same is said.
function unsaid(refused, begun) {
  const silent = refused.find((each) => !(each instanceof Refused));
  if (silent) return new Error("No answer. It may have been done: look at the operations before you try again.");
  const [first] = refused;
  first.message = `${first.status < 500 ? "Refused: " : ""}${refused.map((each) => each.message).join("; ")}${begun ? `. ${begun} of ${begun + refused.length} were begun` : ""}`;
  return first;
}

function ask(dialogState) {
  state.dialog = { ...dialogState, error: null, isBusy: false };
  draw();
  if (!dialog.open) dialog.showModal();
}

async function confirm(values) {
  const asked = state.dialog;
  Object.assign(asked, { isBusy: true, error: null });
  draw();
  try {
    await asked.go(values);
    if (state.dialog === asked) dialog.close();
  } catch (error) {
    Object.assign(asked, { isBusy: false, error });
    // It may have been left meanwhile, by Escape.
    if (state.dialog !== asked) state.notice = { what: asked.title.replace(/\?$/, ""), error };
  }
  draw();
}
// The browser tells of it later: by then another question may be open.
dialog.addEventListener("close", () => {
  if (dialog.open) return;
  state.dialog = null;
  draw();
});

const ROLES = ["viewer", "operator", "admin"];
// A button that is off cannot be pointed at by keyboard or touch: what the role may not do stands in the head, too.
const MAY = { viewer: "viewer: it may look only", operator: "operator: it may not adopt or drop" };
const may = (needed) => state.role === null || ROLES.indexOf(state.role) >= ROLES.indexOf(needed);

const acts = {
  get isFresh() {
    return connection(state, Date.now()).kind === "fresh";
  },
  isOff: (needed) => !acts.isFresh || !may(needed),
  whyOff: (needed) => (may(needed) ? nothing : `This needs the role ${needed}; the token is of the role ${state.role}.`),
  seenAt: (key) => state.seen.get(key),
  snapshot: (partition) => ask({
    title: partition === null ? "Write snapshots?" : `Write a snapshot of partition ${partition}?`,
    text: `A full snapshot of ${partition === null ? "each live partition of the app" : "it"} is written to Kafka. Processing continues.`,
    label: partition === null ? "Write snapshots" : "Write the snapshot", reason: true,
    go: ({ reason }) => doing("Snapshot", () => act("trigger-snapshot", { ...(partition === null ? {} : { partitions: [partition] }), reason })),
  }),
  retry: (numbers) => ask({
    title: `Retry ${named(numbers).toLowerCase()}?`, label: "Retry",
    text: "It recovers again from Kafka and resumes with the next record. If the cause is still there, it fails again, and nothing else happens.",
    go: () => doing(`Retry of ${named(numbers).toLowerCase()}`, ...numbers.map((each) => () => act(`api/v1/partitions/${each}/retry`))),
  }),
  pause: (partition) => ask({
    title: `Pause partition ${partition}?`, label: "Pause", reason: true,
    text: "The current batch is committed. Then nothing is processed until you resume it, even after a restart. It stays live and can be read.",
    go: ({ reason }) => doing(`Pause of partition ${partition}`, () => act(`api/v1/partitions/${partition}/pause`, { reason })),
  }),
  resume: (partition) => ask({
    title: `Resume partition ${partition}?`, label: "Resume", text: "It resumes with the next record.",
    go: () => doing(`Resume of partition ${partition}`, () => act(`api/v1/partitions/${partition}/resume`)),
  }),
  drill: (partition) => ask({
    title: `Drill partition ${partition}?`, label: "Drill",
    text: "Its owner restores it into a second copy, compares the digest and discards the copy. Processing continues. Meanwhile memory holds the state twice.",
    go: () => doing(`Drill of partition ${partition}`, () => act(`api/v1/partitions/${partition}/drill`)),
  }),
  drain: ({ process_id: id, instance_id: name, host }) => ask({
    title: `Drain ${placed(name || id, host)}?`, label: "Drain", reason: true,
    text: "It hands its partitions over to the other processes, first to those with warm copies. It stays up and takes no partitions until it is undrained or restarted.",
    go: ({ reason }) => doing(`Drain of ${name || id}`, () => act(`api/v1/processes/${encodeURIComponent(id)}/drain`, { reason })),
  }),
  undrain: ({ process_id: id, instance_id: name, host }) => ask({
    title: `Undrain ${placed(name || id, host)}?`, label: "Undrain", text: "The group assigns partitions to it again.",
    go: () => doing(`Undrain of ${name || id}`, () => act(`api/v1/processes/${encodeURIComponent(id)}/undrain`)),
  }),
  cancel: ({ id, kind }) => ask({
    title: `Cancel this ${kind}?`, label: `Cancel the ${kind}`,
    text: "Parts that have not begun are dropped, and a drill is abandoned. Parts that have begun to change something are completed.",
    go: () => doing(`Cancel of the ${kind}`, () => act(`api/v1/operations/${encodeURIComponent(id)}`, null, "DELETE")),
  }),
  keep: () => ask({
    title: "Keep a savepoint?", label: "Keep it", name: true, reason: true,
    text: "The state of each partition after its last committed batch is written to separate topics. Processing continues. Each partition is kept at its own moment.",
    go: ({ name, reason }) => doing(`Savepoint ${name}`, () => act("api/v1/savepoints", { name, reason })),
  }),
  drop: (name) => ask({
    title: `Drop savepoint ${name}?`, label: "Drop it", typed: name,
    text: "Its topics are deleted permanently. Apps that began with it keep their state.",
    go: () => doing(`Drop of savepoint ${name}`, () => act(`api/v1/savepoints/${encodeURIComponent(name)}`, null, "DELETE")),
  }),
  adopt: (partition) => ask({
    title: `Adopt a proposed snapshot of partition ${partition}?`, label: "Adopt", offset: true,
    text: "The owner reads the snapshot that a job has written and hashes every entry. It adopts the snapshot if it equals the state of its batch, and rejects it otherwise. Processing continues.",
    go: ({ offset }) => doing(`Adoption for partition ${partition}`, () => act(`api/v1/partitions/${partition}/adopt`, { manifest_offset: offset })),
  }),
};

const page = {
  acts,
  histories: new Histories(draw),
  hours,
  get only() { return state.only; },
  get open() { return state.open; },
  get whole() { return state.whole; },
  show: (only) => { state.only = only; draw(); },
  toggle: (number) => { toggled(state.open, number); draw(); },
  toggleWhole: (name) => { toggled(state.whole, name); draw(); },
};

function toggled(set, value) {
  if (!set.delete(value)) set.add(value);
}

function open(number) {
  state.open.add(number);
  state.only = "all";
  history.replaceState(null, "", `#partition-${number}`);
  draw();
  const row = document.getElementById(`partition-${number}`);
  row?.scrollIntoView({ block: "start" });
  row?.querySelector("button").focus({ preventScroll: true });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  // On plain HTTP from another machine a browser has no clipboard: then the command is selected.
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } else getSelection().selectAllChildren(button.previousElementSibling);
});

// ---- what is seen

let linkFollowed = false;

function draw() {
  const nowMs = serverNow();
  const line = connection(state, Date.now());
  const all = state.told ? picture(state.told, nowMs) : null;
  document.title = `${spoken(line, all)} · ${all?.facts.app_id ?? "snapreplay"}`;
  render(whole(line, all, nowMs), root);
  render(state.dialog ? confirmation(state.dialog, confirm, () => dialog.close()) : nothing, dialog);
  if (all && !linkFollowed) followLink();
}

function followLink() {
  linkFollowed = true;
  const [, number] = location.hash.match(/^#partition-(\d+)$/) ?? [];
  if (number !== undefined) open(Number(number));
}

function whole(line, all, nowMs) {
  const heardAt = state.heardAt === null ? null : new Date(state.heardAt + state.offsetMs).toISOString();
  const isFresh = line.kind === "fresh";
  return html`${top(line, all, heardAt, nowMs)}
    <main id="main" tabindex="-1"><p class="hidden" role="status">${spoken(line, all)}</p>
      ${band(line, all, heardAt, nowMs)}
      ${line.kind === "token" ? login() : nothing}
      ${state.notice && all ? notice(all) : nothing}
      ${all ? html`<div class=${isFresh ? "" : "old"}>
        ${problemCards(all, nowMs, acts)}
        ${restores(all, nowMs, page)}${map(all, nowMs, acts, open)}${plotted(all, nowMs)}${rows(all, nowMs, page)}${entries(all, nowMs, isFresh, draw)}${lists(all, nowMs, page)}${savepoints(kept, nowMs, acts)}</div>` : nothing}
    </main>
    ${all ? html`<footer><p>snapreplay ${all.facts.version} · app ${all.facts.app_id} ${all.facts.app_version} · cluster ${all.facts.cluster_id ?? "not reached"} · process ${all.facts.process_id} on ${all.facts.host}</p>
      <p>Point at a time to see it in UTC. <a href="openapi.json">HTTP API (openapi.json)</a> · <a href="metrics">metrics</a></p></footer>` : nothing}`;
}

// The line about the page itself, which says nothing of the app.
function top(line, all, heardAt, nowMs) {
  const words = { loading: ["unknown", "asking"], stale: ["unknown", "old"], token: ["unknown", "no token"], unreachable: ["bad", "no connection"], refused: ["bad", "refused"] };
  const links = [["map", "Who has what"], ["partitions", "Partitions"], ["state", "State"], ["snapshots", "Snapshots"], ["savepoints", "Savepoints"], ["operations", "Operations"], ["decisions", "Decisions"], ["group", "Group"]];
  return html`<header class="top"><strong class="brand">snapreplay</strong>
    ${all ? html`<nav aria-label="Sections">${links.map(([id, name]) => html`<a href="#${id}">${name}</a>`)}</nav>` : nothing}
    <span class="line">This page: ${line.kind === "fresh" ? "live" : badge(...words[line.kind])}${heardAt === null ? nothing : html`, as of ${moment(heardAt, nowMs, false)}`}
    <span class="zone">· times in ${zone(nowMs)}</span>
    ${token.get() ? html`${state.role ? html`· role ${MAY[state.role] ?? state.role}` : nothing} <button type="button" @click=${() => { token.forget(); location.reload(); }}>Forget the token</button>` : nothing}</span></header>`;
}

function plotted(all, nowMs) {
  const { facts, partitions } = all;
  const goals = partitions.map((each) => each.objective?.seconds).filter(Boolean);
  return html`<section aria-labelledby="plots-title"><h2 id="plots-title">The last hour</h2>
    ${plots(hours.app, nowMs, { of: facts.partition_count ?? 0, without: withoutLag(all), goal: goals.length ? Math.min(...goals) : null })}</section>`;
}

// The status lists the last 50 operations: an older one is asked for by its id, while this page is drawn each second.
async function lookUp(notice) {
  if (notice.isAsked) return;
  notice.isAsked = true;
  try {
    notice.told = await get(`api/v1/operations/${encodeURIComponent(notice.id)}`);
  } catch (error) {
    if (error instanceof Refused) notice.error = error;
  }
  setTimeout(() => { notice.isAsked = false; }, ASK_AGAIN_MS);
}

function notice(all) {
  const { what, id, state: was, error, told } = state.notice;
  if (error) return noticed("bad", what, html` ${error.message}${error.hint ? html` ${instructions(error.hint)}` : nothing}`);
  // One id joins those that several processes have of it.
  const listed = id.split("+").map((one) => all.told.operations.items.find((each) => each.id === one));
  const isOld = listed.includes(undefined);
  if (isOld && !state.notice.endedAt) lookUp(state.notice);
  const found = isOld ? [told] : listed;
  const states = found.map((each) => each?.state ?? was);
  const now = ["running", "failed", "cancelled"].find((each) => states.includes(each)) ?? states[0];
  const details = found.flatMap((each) => each?.parts ?? []).map((each) => each.detail).filter(Boolean);
  const level = { succeeded: "good", failed: "bad", cancelled: "past" }[now] ?? "busy";
  const isDone = ["good", "past"].includes(level);
  if (isDone) state.notice.endedAt ??= Date.now();
  if (isDone && Date.now() - state.notice.endedAt > NOTICE_MS) return nothing;
  return noticed(level, `${what}: ${now}`, details.length ? html` ${details[0]}` : nothing);
}

const noticed = (level, word, more) => html`<p class="notice ${level}" role="status"><span>${badge(level, word)}${more}</span>
    <button type="button" aria-label="Close this message" @click=${() => { state.notice = null; draw(); }}>✕</button></p>`;

function login() {
  const enter = (event) => {
    event.preventDefault();
    const value = new FormData(event.target).get("token").trim();
    token.set(value);
    location.reload(); // and with it the stream of events
  };
  return html`<form class="login" @submit=${enter}>
    ${state.tokenWas ? html`<p class="message" role="alert">The token ${state.tokenWas}</p>` : nothing}
    <label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="off" required>
    <button class="act">Show the page</button>
    <p><small>One of the tokens in the file that the setting <code>http.token_file</code> names. It is kept until this tab is closed.</small></p></form>`;
}
