// Asks the process, every two seconds, and with each action of the user. Knows the token, and nothing of the picture.

const KEY = "snapreplay.token";
const PERIOD_MS = 2000;
const PATIENCE_MS = 8000;
const READ_PATIENCE_MS = 12_000; // of what is read from Kafka: the service gives up after 8 s, and says so
const STREAM_PAUSE_MS = 5000;
const REFUSED_PAUSE_MS = 60_000;

const QUESTIONS = {
  facts: "api/v1",
  restores: "restore-status?scope=app",
  partitions: "api/v1/partitions?scope=app",
  snapshots: "api/v1/snapshots?scope=app&limit=100",
  operations: "api/v1/operations?scope=app",
  ready: "readyz",
};

// A refusal of the process, with its problem document; `kind` is the end of its stable type.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `HTTP status ${status} without a reason: a proxy between may have answered`);
    this.status = status;
    this.kind = String(problem.type || "").split(":").pop();
    this.hint = problem.hint || "";
    this.partitions = problem.partitions ?? []; // where the key was looked for
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

async function ask(path, options = {}, patienceMs = PATIENCE_MS) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  return fetch(path, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(patienceMs) });
}

// An integer that is too large for a number of JavaScript stays as it was written: each digit of a stored value counts.
export const exact = (_name, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? JSON.rawJSON(context.source) : value;

// An answer that was cut on its way is none, even if its head says otherwise.
async function parse(response, reviver) {
  const body = await response.text().then((text) => JSON.parse(text, reviver)).catch((cut) => { if (response.ok) throw cut; return {}; });
  if (!response.ok && !Array.isArray(body.checks)) throw new Refused(response.status, body);
  return body;
}

export async function get(path) {
  try {
    return await parse(await ask(path, {}, READ_PATIENCE_MS), exact);
  } catch (error) {
    throw error instanceof Refused ? error : new Error("no answer: ask again"); // what a browser says of it is no help
  }
}

// An answer that is read when somebody asks: what it is, whether it is being read, and why it could not be.
export class Reading {
  answer = null;
  isBusy = false;
  error = null;
  failedAt = -Infinity; // monotonic
  #path;
  #draw;

  constructor(path, draw) {
    this.#path = path;
    this.#draw = draw;
  }

  async read() {
    Object.assign(this, { isBusy: true, error: null });
    this.#draw();
    try {
      this.answer = await get(this.#path);
    } catch (error) {
      Object.assign(this, { error, failedAt: performance.now() });
    }
    this.isBusy = false;
    this.#draw();
  }
}

// A service whose event loop is blocked has started nothing: it is asked again.
export async function act(path, body, method = "POST") {
  const headers = {};
  if (body) headers["Content-Type"] = "application/json";
  const options = { method, headers, body: body && JSON.stringify(body) };
  const began = performance.now();
  for (;;) {
    try {
      return await parse(await ask(path, options));
    } catch (error) {
      if (error.kind !== "loop-blocked" || method !== "POST" || performance.now() - began > PATIENCE_MS) throw error;
    }
  }
}

// The apps of the process, where it has several: then the page of each is below its id. Asked once.
export async function apps() {
  if (!/\/apps\/[^/]+\/$/.test(location.pathname)) return [];
  try {
    return (await parse(await ask("../../apps"))).items;
  } catch {
    return []; // a proxy may serve the page of a single app below such a path
  }
}

// Everything that the process says now, and how far the clock of this machine is behind its own.
async function all() {
  const sentAt = Date.now();
  const answers = await Promise.allSettled(Object.values(QUESTIONS).map((path) => ask(path)));
  const lost = answers.find((each) => each.status === "rejected");
  if (lost) throw lost.reason;
  const answer = {};
  let refused = null;
  for (const [index, name] of Object.keys(QUESTIONS).entries()) {
    try {
      answer[name] = await parse(answers[index].value);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refused ??= error;
    }
  }
  const date = Date.parse(answers[0].value.headers.get("Date"));
  const offsetMs = Number.isNaN(date) ? 0 : date + 500 - (sentAt + Date.now()) / 2;
  return { answer, refused, offsetMs, role: answers[0].value.headers.get("Snapreplay-Role") };
}

// Calls `onAnswer(outcome)` with each answer: {answer, refused, offsetMs, role}, or {lost}. An event of the process
// makes the next question come earlier; without that stream the questions continue all the same.
export function follow(onAnswer) {
  let timer = 0;
  let asking = null;
  async function once() {
    clearTimeout(timer);
    asking ??= all()
      .catch((lost) => ({ lost }))
      .then((outcome) => {
        asking = null;
        onAnswer(outcome);
        timer = setTimeout(once, PERIOD_MS);
      });
    return asking;
  }
  // A browser has six connections to a host for all its tabs: only the visible tab keeps a stream.
  let stream = null;
  function seen() {
    stream?.abort();
    stream = null;
    if (document.hidden) return;
    once();
    stream = new AbortController();
    listen(once, stream.signal);
  }
  document.addEventListener("visibilitychange", seen);
  addEventListener("online", once);
  seen();
  return once;
}

// Calls `news` with each event of the process, and after each end of the stream.
async function listen(news, signal) {
  while (!signal.aborted) {
    let pauseMs = STREAM_PAUSE_MS;
    try {
      const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
      const response = await fetch("api/v1/events", { headers, signal, cache: "no-store" });
      if (response.ok) await readEvents(response.body.pipeThrough(new TextDecoderStream()).getReader(), news);
      else pauseMs = REFUSED_PAUSE_MS;
    } catch {
      // The answers to the questions say what is wrong.
    }
    if (signal.aborted) return;
    news();
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

// An event that is missed, because its name was cut in two, is no loss: the next question comes anyway.
async function readEvents(reader, news) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    if (/^event:/m.test(value)) news();
  }
}
