// What the answers of a process mean: who has what, what is wrong, what it is worth. Pure.

import { ageSeconds, count, counted, lowered, placed, seconds } from "./format.js";
import { ending, inWords, ratiosOf } from "./until.js";

const ON_THE_WAY = ["assigned", "fencing", "claiming", "locating", "loading", "advancing"];
export const STAGES = ["fencing", "claiming", "locating", "loading", "advancing"];

const STALE_SECONDS = 6;
const START_SECONDS = 30;
const NEW_SECONDS = 5; // for so long a process that was just seen may not have been reached
export const ANSWERING = ["self", "reachable"];

// Failures by which nothing that was committed can be gone: a record waits, or a program or a name has to change.
const AT_A_RECORD = ["HandlerFailed", "RefusedAgain"];
const NOT_LOST = [
  "DuplicateInstance", "HangingTransaction", "SchemaDiffers", "NotUpgradable", "UpgradeFailed",
  "StoredValueUnreadable", "DeadLetterLimitReached",
];

export const LEVELS = { good: "good", busy: "being restored", warn: "attention", bad: "down", unknown: "unknown" };

function levelOf(partition) {
  if (partition.phase === "live") {
    const doubtful = partition.recoverable === false || partition.ownership_doubt || partition.paused_since || partition.restore?.waiting_for;
    return doubtful || partition.blocked_by_open_transaction.length ? "warn" : "good";
  }
  return ON_THE_WAY.includes(partition.phase) ? "busy" : "bad";
}

// The state of the line to the process: what this page knows of its own knowledge.
export function connection(state, nowMs) {
  const age = state.heardAt === null ? null : (nowMs - state.heardAt) / 1000;
  const problem = state.refused;
  if (problem?.status === 401) return { kind: "token", age, why: problem.message };
  if (state.lost) return { kind: "unreachable", age, why: "" };
  if (problem) return { kind: "refused", age, why: problem.message, hint: problem.hint };
  if (age === null) return { kind: "loading", age, why: "" };
  return { kind: age > STALE_SECONDS ? "stale" : "fresh", age, why: "" };
}

// One picture out of all answers. `nowMs`: by the clock of the process.
export function picture(answer, nowMs) {
  const { facts } = answer;
  const restores = new Map(answer.restores.partitions.map((each) => [each.partition, each]));
  const partitions = answer.partitions.items
    .filter((each) => each.process_id !== null && each.phase !== "closed")
    .map((each) => ({ ...each, ...lookOf(each, restores.get(each.partition)) }));
  const past = ratiosOf(partitions);
  for (const each of partitions) if (each.level === "busy") each.ending = ending(each, past, nowMs);
  const standbys = answer.restores.standbys.map((each) => ({ ...each, level: ANSWERING.includes(each.process_state) ? "copy" : "unknown" }));
  const owned = new Set(partitions.map((each) => each.partition));
  const missing = [...Array(facts.partition_count ?? 0).keys()].filter((number) => !owned.has(number));
  const lanes = answer.restores.processes.map((process) => lane(process, partitions, standbys, nowMs));
  for (const { process, owned: theirs } of lanes) for (const each of theirs) each.owner = process.instance_id || process.process_id;
  const all = { facts, partitions, standbys, lanes, missing, answer };
  return { ...all, problems: problems(all, nowMs) };
}

// The two answers may be a moment apart: a restore of another owner says nothing of this one.
function lookOf(partition, restore) {
  const isKnown = partition.phase !== null && ANSWERING.includes(partition.process_state);
  const isSame = restore?.process_id === partition.process_id;
  return {
    level: isKnown ? levelOf(partition) : "unknown",
    percent: isSame ? restore.percent : null,
    proof: isSame ? restore.proof : null,
    since: since(partition),
    lag: partition.phase === "live" ? lagOf(partition.inputs) : null,
  };
}

const lagOf = (inputs) => (!inputs.length || inputs.some((each) => each.lag === null) ? null : inputs.reduce((sum, each) => sum + each.lag, 0));

function since({ phase, restore, error }) {
  if (phase === "live") return restore?.finished_at ?? null;
  return ON_THE_WAY.includes(phase) ? (restore?.started_at ?? null) : (error?.at ?? null);
}

function lane(process, partitions, standbys, nowMs) {
  const of = (each) => each.process_id === process.process_id;
  const isNew = process.state === "unreachable" && !process.started_at && ageSeconds(process.since, nowMs) < NEW_SECONDS;
  return { process, isNew, owned: partitions.filter(of), copies: standbys.filter(of) };
}

// ---- what is wrong

const WORST_FIRST = ["bad", "busy", "warn"];

function problems(all, nowMs) {
  const found = [
    ...notBegun(all),
    ...checks(all, nowMs),
    ...down(all),
    ...ownerless(all, nowMs),
    ...awayProcesses(all),
    ...underWay(all),
    ...atRisk(all),
    ...drills(all),
    ...obstacles(all),
    ...waiting(all),
    ...slow(all),
    ...pauses(all),
    ...drains(all),
    ...snapshotsFailed(all),
    ...copiesMissing(all, nowMs),
    ...circuitsOpen(all),
  ];
  return found.sort((a, b) => WORST_FIRST.indexOf(a.level) - WORST_FIRST.indexOf(b.level));
}

function notBegun({ facts }) {
  if (!facts.waiting_for) return [];
  const [what, rest] = split(facts.waiting_for);
  return [{
    key: "genesis", level: "bad", what: "The app is not initialised", message: what, since: facts.started_at,
    until: "Until you initialise it.", lost: { level: "good", text: "No. There is no state yet." }, todo: rest || what, retry: [],
  }];
}

// "what (do)" → what, do.
function split(text) {
  const at = text.indexOf(" (");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2).replace(/\)$/, "")];
}

export const numbers = (partitions) => partitions.map((each) => each.partition);

// "Partitions 0, 7 and 20–39".
export function named(list) {
  const runs = [];
  for (const each of [...list].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else runs.push([each, each]);
  }
  const words = runs.flatMap(([first, last]) => (last - first > 1 ? [`${first}–${last}`] : last > first ? [first, last] : [first]));
  const few = words.length > 12 ? [...words.slice(0, 12), "others"] : words;
  const text = few.length > 1 ? `${few.slice(0, -1).join(", ")} and ${few.at(-1)}` : few.join("");
  return `${list.length === 1 ? "Partition" : "Partitions"} ${text}`;
}

export const is = (list) => (list.length === 1 ? "is" : "are");

// Partitions with the same trouble, for one card each: with many, each by itself would hide the others.
function alike(partitions, of) {
  const groups = new Map();
  for (const each of partitions) groups.set(of(each), [...(groups.get(of(each)) ?? []), each]);
  return [...groups];
}

const earliest = (times) => times.filter(Boolean).sort()[0] ?? null;
const among = (group, text) => (group.length > 1 ? `Partition ${group[0].partition}: ${text}` : text);

// A command for these partitions, and no others.
const forThese = (command, group) => `\`snapreplay ${command}${group.map((each) => ` --partition ${each.partition}`).join("")}`;

function down({ partitions }) {
  const bad = partitions.filter((each) => each.level === "bad");
  return alike(bad, (each) => `${each.process_id} ${each.phase} ${each.error?.kind ?? ""}`).map(([key, group]) => {
    const [first] = group;
    const { error } = first;
    return {
      key, level: "bad", partitions: numbers(group), kind: `${first.phase}${error ? `: ${error.kind}` : ""}`,
      what: `${named(numbers(group))} ${is(group)} down`,
      where: placed(first.owner, first.host),
      message: error ? among(group, error.message) : "",
      since: earliest(group.map((each) => each.since)),
      until: first.phase === "fenced" ? "Until a newer owner has it, or this process recovers by itself." : "Until you fix it. It will not recover on its own.",
      lost: lostBy(first), ...todoOf(group),
      retry: first.phase === "failed" ? numbers(group) : [],
    };
  });
}

function todoOf(group) {
  const hints = new Set(group.map((each) => each.error?.hint || "See the log of the process."));
  const [todo] = hints;
  return { todo, note: hints.size === 1 ? "" : `This is for partition ${group[0].partition}. Each other one has its own way on, below at its number.` };
}

function lostBy({ error, phase, recoverable }) {
  if (recoverable === false) return { level: "warn", text: ONLY_COPY };
  if (phase === "fenced" || NOT_LOST.includes(error?.kind)) {
    return { level: "good", text: "No. What was committed is in Kafka." };
  }
  if (AT_A_RECORD.includes(error?.kind)) {
    return { level: "good", text: "No. Everything before this record is committed. It and later records are still in the input topic." };
  }
  return { level: "warn", text: "Perhaps: the message says what is missing or differs. Nothing is written until you decide." };
}

function ownerless({ missing, facts, lanes }, nowMs) {
  if (!missing.length) return [];
  const starts = lanes.every(({ process }) => process.started_at && ageSeconds(process.started_at, nowMs) < START_SECONDS);
  return [{
    key: "unowned", level: starts ? "busy" : "bad", word: starts ? "starting" : "down", what: `${named(missing)} ${missing.length === 1 ? "has" : "have"} no owner`,
    partitions: missing, since: null, retry: [],
    until: "Until another process takes over, after the session timeout and a restore.",
    lost: { level: "good", text: "No. What was committed is in Kafka." },
    todo: `Start a process of ${facts.app_id}, if none is there to take over.`,
  }];
}

function underWay({ partitions }) {
  const busy = partitions.filter((each) => each.level === "busy");
  if (!busy.length) return [];
  const failing = busy.find((each) => each.error);
  return [{
    key: "restoring", level: "busy", what: `${named(numbers(busy))} ${is(busy)} being restored`, partitions: numbers(busy),
    message: failing ? `Partition ${failing.partition}, attempt ${failing.restore?.attempts ?? 1}: ${failing.error.message}` : "",
    since: busy.map((each) => each.since).filter(Boolean).sort()[0] ?? null,
    until: until(busy),
    lost: { level: "busy", text: "Known when the restore ends: its digest is compared with the recorded one." },
    todo: failing?.error.hint || "Nothing. It resumes by itself.", retry: [],
  }];
}

function until(busy) {
  const waits = busy.find((each) => each.restore?.waiting_for);
  if (waits) return `It waits: ${waits.restore.waiting_for}`;
  const known = busy.filter((each) => each.ending);
  if (!known.length) return "Not known yet: it is still looking up what to restore.";
  const last = known.reduce((a, b) => (b.ending.high > a.ending.high ? b : a));
  const unknown = busy.filter((each) => !each.ending);
  if (unknown.length) return `${named(numbers(unknown))}: not known yet. Partition ${last.partition} is the last of the others: ${lowered(inWords(last.ending))}`;
  return `${inWords(last.ending)}${busy.length > 1 ? ` This is for partition ${last.partition}, the last one.` : ""}`;
}

// What a process that does not answer said last may be wrong by now.
export const isKnown = (each) => each.level !== "unknown";

// One card for the live partitions of a process of which something holds.
const ofLive = ({ partitions }, holds, card) => ofEach(partitions.filter((each) => each.phase === "live" && holds(each)), card);

// One card for those of these partitions that are of one process.
function ofEach(partitions, card) {
  return alike(partitions, (each) => each.process_id).map(([process, group]) => {
    const [first] = group;
    const { key, ...rest } = card(group, first, named(numbers(group)));
    return { key: `${key} ${process}`, partitions: numbers(group), where: placed(first.owner, first.host), retry: [], ...rest };
  });
}

const ONLY_COPY = "Not yet: the state in memory may be the only copy.";

function atRisk({ partitions }) {
  const found = partitions.filter((each) => each.recoverable === false);
  const isHeld = (each) => isKnown(each) && each.phase !== "live";
  return [...ofEach(found.filter((each) => !isHeld(each)), risk), ...ofEach(found.filter(isHeld), onlyCopy)];
}

const risk = (group, first, names) => ({
  key: "risk", level: "bad", message: among(group, first.unrecoverable_reason), since: null,
  ...(isKnown(first) ? {
    what: `${names} ${is(group)} live, but could not be restored now`,
    until: "Until a new snapshot can be used. The owner writes one as soon as it can.",
    lost: { level: "warn", text: ONLY_COPY },
    todo: "Keep the process alive. Do not restart it until this card is gone.",
  } : {
    what: `${names} could not be restored when ${group.length > 1 ? "their" : "its"} process answered last`,
    until: "Until it answers again, or another process has restored what the topics hold.",
    lost: { level: "warn", text: "Perhaps: the state in the memory of that process may be the only copy." },
    todo: `If the process still runs on host ${first.host}, keep it alive, and do not restart it. Repair what keeps it from answering.`,
  }),
});

const onlyCopy = (group, first, names) => ({
  key: "only copy", level: "bad", message: among(group, first.unrecoverable_reason), since: null,
  what: `The state of ${lowered(names)} is only in the memory of ${group.length > 1 ? "their" : "its"} process`,
  until: "Until the log has it. The process writes it as soon as it can.",
  lost: { level: "warn", text: ONLY_COPY },
  todo: "Keep the process alive. Do not restart it until this card is gone. The error of the partition says what to repair.",
});

function drills(all) {
  return ofLive(all, (each) => each.drill?.state === "failed", (group, first, names) => ({
    key: "drill", level: "warn", what: `The last drill of ${lowered(names)} has failed`,
    message: among(group, first.drill.detail), since: earliest(group.map((each) => each.drill.finished_at)),
    until: "Until a later drill succeeds. The owner writes a snapshot at once.",
    lost: { level: "warn", text: "Not yet. A restore might not lead to this state: the state in memory may be the only copy." },
    todo: `Keep the process alive, then ${forThese("drill", group)} --wait\``,
  }));
}

function slow({ partitions }) {
  const missed = partitions.filter((each) => isKnown(each) && each.objective && !each.objective.is_met);
  if (!missed.length) return [];
  const { partition, objective } = missed.reduce((a, b) => (b.objective.predicted_seconds > a.objective.predicted_seconds ? b : a));
  return [{
    key: "objective", level: "warn", partitions: numbers(missed), since: null, retry: [],
    what: `${named(numbers(missed))} would take longer to restore than restore.objective_seconds`,
    message: `Partition ${partition}: ${objective.reason}`,
    until: "Until a snapshot makes the restore shorter. The owner writes one as soon as it may.",
    lost: { level: "good", text: "No. A restore would only take longer." },
    todo: objective.fresh_seconds > objective.seconds ? "Even a new snapshot would be too slow: use more partitions or a smaller state, or allow more time." : "Nothing, if it ends soon. Otherwise records arrive faster than snapshots can be written: use more partitions, or allow more time.",
  }];
}

function obstacles({ partitions }) {
  const known = partitions.filter(isKnown);
  const topics = known.flatMap((p) => p.blocked_by_open_transaction.map((each) => ({ ...each, partition: p.partition })));
  const doubts = known.filter((each) => each.ownership_doubt);
  return [
    ...alike(topics, (each) => `${each.topic} ${each.held_by?.producer_id ?? ""}`).map(([key, group]) => held(key, group)),
    ...(doubts.length ? [{
      key: "doubt", level: "warn", partitions: numbers(doubts),
      what: `${named(numbers(doubts))} may have another owner by now`, message: doubts[0].ownership_doubt, since: null, retry: [],
      until: "Until its next commit, or the log, settles this within a second.", lost: { level: "good", text: "No. A stale owner cannot commit." },
      todo: "Nothing. This settles itself.",
    }] : []),
  ];
}

// Live partitions that process nothing: they need a schema that no registry gives, or the next record of an input.
function waiting(all) {
  return ofLive(all, (each) => each.restore?.waiting_for, (group, first, names) => ({
    key: "waiting", level: "warn", what: `${names} ${group.length > 1 ? "wait" : "waits"} and ${group.length > 1 ? "process" : "processes"} nothing`,
    message: first.restore.waiting_for, since: null, until: "Until it gets what the message names. It asks for it again and again.",
    lost: { level: "good", text: "No. The records wait in the inputs, as long as their retention lasts." },
    todo: "Repair what the message names. Processing then resumes by itself.",
  }));
}

// One transaction may hold back a topic in many partitions.
function held(key, group) {
  const [{ topic, partition, held_by: by, last_stable_offset: end }] = group;
  const offsets = counted(group.reduce((sum, each) => sum + each.offsets, 0), "offset");
  return {
    key: `blocked ${key}`, level: "warn", partitions: numbers(group), retry: [],
    what: group.length > 1 ? `${topic} delivers nothing to ${lowered(named(numbers(group)))}` : `${topic}-${partition} delivers nothing`,
    since: earliest(group.map((each) => each.held_by?.started_at ?? each.held_by?.last_record_at)),
    message: `A transaction has been open for more than a minute${heldBy(by)}. ${offsets} wait behind ${group.length > 1 ? "it" : `offset ${count(end)}`}.`,
    until: by?.timeout_seconds ? `Until that transaction ends, at the latest ${seconds(by.timeout_seconds)} after its start.` : "Until that transaction ends.",
    lost: { level: "good", text: "No. The records wait." },
    todo: by?.transactional_id ? "Stop the program that uses this transactional id, or wait." : "`kafka-transactions.sh find-hanging` finds it.",
  };
}

// The program with the open transaction, as far as the brokers know it.
function heldBy(transaction) {
  if (!transaction) return "";
  const id = transaction.transactional_id ? ` of transactional id ${transaction.transactional_id}` : ", which no coordinator names: it hangs, or Describe on its transactional id is missing";
  return `: that of producer id ${transaction.producer_id}${id}`;
}

function pauses(all) {
  return ofLive(all, (each) => each.paused_since, (group, first, names) => ({
    key: "paused", level: "warn", what: `${names} ${is(group)} paused`,
    message: [...new Set(group.map((each) => each.paused_reason || "No reason was given."))].join("; "),
    since: earliest(group.map((each) => each.paused_since)), until: `Until somebody resumes ${group.length > 1 ? "them" : "it"}, here or by the command. A restart does not resume it.`,
    lost: { level: "good", text: "No. The records wait in the inputs, as long as their retention lasts." },
    todo: `${forThese("resume", group)}\``,
  }));
}

function drains({ lanes }) {
  return lanes.filter(({ process }) => process.drain && ANSWERING.includes(process.state)).map(({ process, owned }) => ({
    key: `drain ${process.process_id}`, level: "warn", where: process.host,
    what: `Process ${process.instance_id || process.process_id} is ${process.drain.state === "drained" ? "drained" : "being drained"}`,
    message: `Requested by ${process.drain.by}: ${process.drain.reason || "no reason was given"}.${owned.length ? ` ${named(numbers(owned))} ${is(owned)} still there, until another process takes ${owned.length === 1 ? "it" : "them"}.` : ""}`,
    since: process.drain.since, until: "Until somebody undrains or restarts it.",
    lost: { level: "good", text: "No. Other processes have its partitions, or it still processes them." },
    todo: `\`snapreplay undrain --url ${process.url ?? "URL"}\``, retry: [],
  }));
}

// What the process says of itself, where no partition says it already. The first of these explains those behind it.
const CHECKS = {
  cluster: ["reaches no broker of its cluster", "Check the brokers, `kafka.bootstrap.servers` and the network."],
  "runner loop": ["is suspended", "A handler blocks, or the process gets no CPU time: look at its log and its load."],
  "instance id": ["has stepped down for another process of its name", "Stop one of the two, or give each its own `instance_id`."],
  member: ["has no contact with the app's group", "Check the brokers, the network and the log of the process."],
};

function checks({ answer, facts, partitions }, nowMs) {
  const failing = answer.ready.checks.filter((each) => !each.ok && each.name in CHECKS);
  const [first] = Object.keys(CHECKS).map((name) => failing.find((each) => each.name === name)).filter(Boolean);
  if (!first || facts.waiting_for) return [];
  const [what, otherwise] = CHECKS[first.name];
  const [message, hint] = split(first.detail);
  const todo = hint || otherwise;
  const starts = !partitions.length && ageSeconds(facts.started_at, nowMs) < START_SECONDS;
  return [{
    key: `check ${first.name}`, level: starts ? "busy" : "bad", word: starts ? "starting" : "down", what: `Process ${facts.instance_id} ${starts ? "is starting" : what}`,
    message: starts && first.name === "member" ? "It is joining the app's group." : message, since: starts || first.name === "cluster" ? facts.started_at : (first.since ?? null),
    todo: starts ? "Nothing. It resumes by itself." : todo, retry: [],
    until: "It retries, and resumes when the cause is gone.", lost: { level: "good", text: "No. It commits nothing meanwhile." },
  }];
}

// ---- other processes that do not answer: what becomes of their partitions

const AWAY = {
  dead: "seems to be dead", unreachable: "does not answer", no_address: "has no HTTP address",
  wrong_address: "advertises an address where something else answers",
};

function awayProcesses({ lanes, partitions, answer }) {
  const isCutOff = answer.ready.checks.some((each) => !each.ok && OF_THE_GROUP.includes(each.name));
  const isAlone = !lanes.some(({ process }) => ANSWERING.includes(process.state) && !process.drain);
  const known = partitions.filter(isKnown);
  const [others, live] = [known, known.filter((each) => each.phase === "live")].map((each) => new Set(numbers(each)));
  return lanes.filter(({ process }) => AWAY[process.state] && process.is_member).map(({ process, isNew }) => {
    const left = process.partitions.filter((each) => !others.has(each));
    const isTaken = process.partitions.length && process.partitions.every((each) => live.has(each));
    const about = process.state === "no_address" ? UNSEEN : isNew ? NEW : isTaken ? takenFrom(process) : leftBy(process, isCutOff ? "cut off" : isAlone ? "alone" : "followed");
    return {
      key: `process ${process.process_id}`, since: process.since, retry: [],
      what: `Process ${placed(process.instance_id || process.process_id, process.host)} ${isNew ? "has not answered yet" : AWAY[process.state]}`,
      message: [process.last_error, left.length ? `${named(left)} ${is(left)} given to it.` : ""].filter(Boolean).join("\n"), ...about,
    };
  });
}

const NOT_KNOWN = { level: "unknown", text: "Not known from here. What it committed is in Kafka." };
const UNSEEN = {
  level: "warn", until: "It is started with an address.", lost: NOT_KNOWN,
  todo: "Nothing is wrong with its work: it cannot be seen from here.",
};
const NEW = {
  level: "busy", word: "starting", until: "It answers, or the page says that it does not.", lost: NOT_KNOWN,
  todo: "Nothing. It has only just been seen.",
};
const look = ({ host }) => `look at host ${host}, and at the log of the process.`;

// Without one of these this process knows of no assignment, and takes nothing over.
const OF_THE_GROUP = ["cluster", "member"];
const FIRST = {
  "cut off": "This process has no contact with the group, and takes nothing over. Repair that first.",
  alone: "Start a process of the app: none is there to take over.", followed: "Nothing now: other processes take over.",
};

const leftBy = (process, others) => ({
  level: "bad", lost: NOT_KNOWN,
  until: "It answers again, or the group gives its partitions to other processes: after group.session_timeout_ms, 10 s unless it is set.",
  todo: `${FIRST[others]} Then ${look(process)}`,
});

const takenFrom = (process) => ({
  level: "warn", until: "It answers again, or is started again.",
  lost: { level: "good", text: "No. Other processes have taken over what it has committed." },
  todo: `Nothing for its partitions. To have as many processes as before, ${look(process)}`,
});

// ---- what an alert is about while every partition is live: too few warm copies, snapshots or calls that fail

// A process that has just started may have others behind it that are starting, too.
function copiesMissing({ lanes }, nowMs) {
  return lanes.filter(({ process: { state, copies, started_at: began }, owned }) => ANSWERING.includes(state) && copies?.why_missing && owned.length && ageSeconds(began, nowMs) > START_SECONDS).map(({ process, owned }) => ({
    key: `copies ${process.process_id}`, level: "warn", partitions: numbers(owned), since: null, retry: [],
    what: `${named(numbers(owned))} ${owned.length === 1 ? "has" : "have"} ${process.copies.given} of ${counted(process.copies.wanted, "warm copy", "warm copies")}`,
    message: process.copies.why_missing,
    until: "Another process can hold copies.",
    lost: { level: "good", text: "No. If this process dies, a takeover only takes longer: a session timeout and a restore." },
    todo: "Start the processes that are gone, and undrain those that are drained. Or ask for fewer copies, with `standby.replicas`.",
  }));
}

function snapshotsFailed(all) {
  const last = new Map([...all.answer.snapshots.items].reverse().map((each) => [each.partition, each]));
  return ofLive(all, (each) => isKnown(each) && last.get(each.partition)?.state === "failed", (group, first, names) => ({
    key: "snapshot", level: "warn", what: `The last snapshot of ${lowered(names)} has failed`,
    message: among(group, last.get(first.partition).error), since: earliest(group.map((each) => last.get(each.partition).finished_at)),
    until: "A later snapshot succeeds.",
    lost: { level: "good", text: "No. The older snapshots stay, and all changes since them. A restore takes longer." },
    todo: "`snapreplay doctor APP` examines the snapshots topic. When the cause is gone, write one: `snapreplay trigger-snapshot --wait`",
  }));
}

function circuitsOpen(all) {
  const open = (each) => each.calls.find((call) => call.circuit_open);
  return ofLive(all, (each) => isKnown(each) && open(each), (group, first, names) => ({
    key: "circuit", level: "warn", what: `Call ${open(first).name} fails in ${lowered(names)}`,
    message: among(group, `${counted(open(first).failures, "attempt")} failed in a row, ${counted(open(first).pending, "call")} pending. ${open(first).last_error}`),
    since: earliest(group.map((each) => open(each).oldest_at)), until: "An attempt succeeds. One call at a time is tried.",
    lost: { level: "good", text: "No. Pending calls are part of the state." }, todo: "Repair what the call asks. Processing of records continues meanwhile.",
  }));
}
