// The state of the page, and how an answer of the process becomes what is seen.

import { html, nothing, render } from "./vendor/lit-html/lit-html.js";
import { Acts, confirmation } from "./acts.js";
import { partitions } from "./detail.js";
import { entries } from "./entries.js";
import { historyTab } from "./history.js";
import { Letters, letters } from "./letters.js";
import { connection, picture } from "./model.js";
import { moving } from "./motion.js";
import { Notice } from "./notice.js";
import { band, slimBand, spoken } from "./now.js";
import { operations } from "./operations.js";
import { overview } from "./overview.js";
import { Hours, Span } from "./plots.js";
import { Rates } from "./rates.js";
import { Watch } from "./restores.js";
import { route } from "./routes.js";
import { snapshots } from "./snapshots.js";
import { Reading, Refused, apps, follow, token } from "./source.js";
import { footer, login, top } from "./top.js";

const state = { heardAt: null, answer: null, refused: null, lost: null, offsetMs: 0, role: null, dialog: null, tokenWas: "", apps: [] };
const seen = new Map(); // when this page saw a problem first, by its key
const root = document.getElementById("page");
const dialog = document.createElement("dialog");
document.body.append(dialog);
root.replaceChildren();

const serverNow = () => Date.now() + state.offsetMs;

const page = {
  get isFresh() { return connection(state, Date.now()).kind === "fresh"; },
  get role() { return state.role; },
  only: "all",
  whole: new Set(),
  hours: new Hours(draw), letters: new Letters(draw), kept: new Reading("api/v1/savepoints", draw), histories: new Map(), // by partition
  rates: new Rates(), watch: new Watch(), span: new Span(draw), notice: new Notice(draw),
  draw, ask, doing,
  seenAt: (key) => seen.get(key),
  show: (only) => { page.only = only; draw(); },
  toggleWhole: (name) => { if (!page.whole.delete(name)) page.whole.add(name); draw(); },
};
page.acts = new Acts(page);

// ---- what comes

const askNow = follow(({ answer, refused = null, lost = null, offsetMs = state.offsetMs, role = state.role }) => {
  Object.assign(state, { refused, lost, offsetMs, role });
  if (refused?.status === 401) {
    state.tokenWas = token.get() ? (state.heardAt === null ? "was refused." : "is not accepted any more: it has expired, or was withdrawn.") : state.tokenWas;
    token.forget();
  }
  const isFirst = answer && !refused && !state.answer;
  if (answer && !refused) took(answer);
  draw();
  if (!isFirst) return;
  showTab();
  if (shownPartition() !== null) goTo(shownPartition()); // the page was opened at it
});
apps().then((found) => { state.apps = found; draw(); });
setInterval(draw, 1000);

function took(answer) {
  Object.assign(state, { answer, heardAt: Date.now(), tokenWas: "" });
  const all = picture(answer, serverNow());
  const keys = all.problems.map(({ key }) => key);
  for (const key of seen.keys()) if (!keys.includes(key)) seen.delete(key);
  for (const key of keys) if (!seen.has(key)) seen.set(key, new Date(serverNow()).toISOString());
  page.rates.look(all.partitions, performance.now());
  page.watch.look(all);
  page.hours.look(shownPartition());
}

const shownPartition = () => {
  const { tab, number } = route(location.hash);
  return tab === "partitions" ? number : null;
};

// ---- what is done

async function doing(what, ...requests) {
  const answers = await Promise.allSettled(requests.map((request) => request()));
  const begun = answers.filter((each) => each.status === "fulfilled").map((each) => each.value);
  if (begun.length) page.notice.begun(what, begun);
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
    if (state.dialog !== asked) page.notice.failed(asked.title.replace(/\?$/, ""), error);
  }
  draw();
}
// The browser tells of it later: by then another question may be open.
dialog.addEventListener("close", () => {
  if (dialog.open) return;
  state.dialog = null;
  draw();
});

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

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address would be no tab
  document.getElementById("main").focus();
});

addEventListener("hashchange", () => {
  const number = shownPartition();
  page.hours.look(number);
  draw();
  showTab();
  if (number === null) return scrollTo({ top: 0, behavior: "instant" });
  goTo(number);
});

// On a phone not all tabs are visible.
function showTab() {
  document.querySelector('.top [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center", behavior: "instant" });
}

function goTo(partition) {
  const row = document.getElementById(`partition-${partition}`);
  row?.scrollIntoView({ block: "nearest" });
  row?.querySelector("button").focus({ preventScroll: true });
}

// ---- what is seen

const CONTENT = {
  overview, partitions, state: entries, "dead-letters": letters, snapshots, history: historyTab, operations,
};

function draw() {
  const nowMs = serverNow();
  const line = connection(state, Date.now());
  const all = state.answer ? picture(state.answer, nowMs) : null;
  document.title = `${spoken(line, all)} · ${all?.facts.app_id ?? "snapreplay"}`;
  moving(root, () => render(whole(line, all, nowMs), root));
  render(state.dialog ? confirmation(state.dialog, confirm, () => dialog.close()) : nothing, dialog);
}

function whole(line, all, nowMs) {
  const heardAt = state.heardAt === null ? null : new Date(state.heardAt + state.offsetMs).toISOString();
  const { tab, number } = route(location.hash);
  const isSlim = all && tab !== "overview";
  return html`${top(line, all, heardAt, nowMs, tab, state.role, state.apps)}
    <main id="main" tabindex="-1"><p class="hidden" role="status">${spoken(line, all)}</p>
      ${isSlim ? slimBand(line, all) : band(line, all, heardAt, nowMs)}
      ${line.kind === "token" ? login(state.tokenWas) : nothing}
      ${all ? html`<div class=${line.kind === "fresh" ? "" : "old"}>${CONTENT[tab](all, nowMs, page, number)}</div>` : nothing}
    </main>
    ${all ? page.notice.shown(all) : nothing}
    ${all ? footer(all.facts) : nothing}`;
}
