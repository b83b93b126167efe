// The head of the page: the app, the tabs, and what the page knows of its own knowledge. The login. The foot.

import { html, nothing } from "./vendor/lit-html/lit-html.js";
import { MAY } from "./acts.js";
import { zone } from "./format.js";
import { badge, moment } from "./parts.js";
import { TABS, href } from "./routes.js";
import { token } from "./source.js";

const WORDS = { loading: ["unknown", "asking"], stale: ["unknown", "old"], token: ["unknown", "no token"], unreachable: ["bad", "no connection"], refused: ["bad", "refused"] };

export function top(line, all, heardAt, nowMs, tab, role, apps) {
  return html`<header class="top"><div class="bar"><a class="brand" href="#overview"><strong>snapreplay</strong></a>
    ${all ? html`<span class="app">${all.facts.app_id}</span>` : nothing}${others(apps, all, tab)}
    <span class="line">This page: ${line.kind === "fresh" ? html`<span class="pulse" aria-hidden="true"></span>live` : badge(...WORDS[line.kind])}${heardAt === null ? nothing : html`, as of ${moment(heardAt, nowMs, false)}`}
    <span class="zone">· times in ${zone(nowMs)}</span>
    ${token.get() ? html`${role ? html`· role ${MAY[role] ?? role}` : nothing} <button type="button" @click=${() => { token.forget(); location.reload(); }}>Forget the token</button>` : nothing}</span></div>
    ${all ? html`<nav aria-label="Tabs">${TABS.map(([id, name]) => html`<a href=${href(id)} aria-current=${id === tab ? "page" : "false"}>${name}${marks(id, all)}</a>`)}</nav>` : nothing}</header>`;
}

// The way to the other apps of the process, at the same tab.
function others(apps, all, tab) {
  const found = apps.filter((each) => each.app_id !== all?.facts.app_id);
  return found.length ? html`<span class="zone">also in this process:${found.map((each) => html` <a href=${`../${each.app_id}/${href(tab)}`}>${each.app_id}</a>`)}</span>` : nothing;
}

// What waits for somebody behind a tab.
function marks(id, { partitions, answer }) {
  const wrong = partitions.filter((each) => each.level === "bad").length;
  const running = answer.operations.items.filter((each) => each.state === "running").length;
  if (id === "partitions" && wrong) return html` <span class="mark bad">${wrong}<span class="hidden"> down</span></span>`;
  if (id === "operations" && running) return html` <span class="mark busy">${running}<span class="hidden"> running</span></span>`;
  return nothing;
}

export function login(tokenWas) {
  const enter = (event) => {
    event.preventDefault();
    token.set(new FormData(event.target).get("token").trim());
    location.reload(); // and with it the stream of events
  };
  return html`<form class="login" @submit=${enter}>
    ${tokenWas ? html`<p class="message" role="alert">The token ${tokenWas}</p>` : nothing}
    <label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="off" required>
    <button class="act">Show the page</button>
    <p><small>One of the tokens in the file that the setting <code>http.token_file</code> names. It is kept until this tab is closed.</small></p></form>`;
}

export const footer = (facts) => html`<footer><p>snapreplay ${facts.version} · app ${facts.app_id} ${facts.app_version} · cluster ${facts.cluster_id ?? "not reached"} · process ${facts.process_id} on ${facts.host}</p>
  <p>Point at a time to see it in UTC. <a href="openapi.json">HTTP API (openapi.json)</a> · <a href="metrics">metrics</a></p></footer>`;
