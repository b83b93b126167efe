// What an alert is about while every partition is live: too few warm copies, snapshots or calls that fail. Pure.

import { ageSeconds, counted, lowered } from "./format.js";
import { ANSWERING, START_SECONDS, among, earliest, isKnown, named, numbers, ofLive } from "./model.js";

// A process that has just started may have others behind it that are starting, too.
export function copiesMissing({ lanes }, nowMs) {
  return lanes.filter(({ process: { state, copies, started_at: began }, owned }) => ANSWERING.includes(state) && copies?.why_missing && owned.length && ageSeconds(began, nowMs) > START_SECONDS).map(({ process, owned }) => ({
    key: `copies ${process.process_id}`, level: "warn", partitions: numbers(owned), since: null, retry: [],
    what: `${named(numbers(owned))} ${owned.length === 1 ? "has" : "have"} ${process.copies.given} of ${counted(process.copies.wanted, "warm copy", "warm copies")}`,
    message: process.copies.why_missing,
    until: "Another process can hold copies.",
    lost: { level: "good", text: "No. If this process dies, a takeover only takes longer: a session timeout and a restore." },
    todo: "Start the processes that are gone, and undrain those that are drained. Or ask for fewer copies, with `standby.replicas`.",
  }));
}

export function snapshotsFailed(all) {
  const last = new Map([...all.told.snapshots.items].reverse().map((each) => [each.partition, each]));
  return ofLive(all, (each) => isKnown(each) && last.get(each.partition)?.state === "failed", (group, first, names) => ({
    key: "snapshot", level: "warn", what: `The last snapshot of ${lowered(names)} has failed`,
    message: among(group, last.get(first.partition).error), since: earliest(group.map((each) => last.get(each.partition).finished_at)),
    until: "A later snapshot succeeds.",
    lost: { level: "good", text: "No. The older snapshots stay, and all changes since them. A restore takes longer." },
    todo: "`snapreplay doctor APP` examines the snapshots topic. When the cause is gone, write one: `snapreplay trigger-snapshot --wait`",
  }));
}

export function circuitsOpen(all) {
  const open = (each) => each.calls.find((call) => call.circuit_open);
  return ofLive(all, (each) => isKnown(each) && open(each), (group, first, names) => ({
    key: "circuit", level: "warn", what: `Call ${open(first).name} fails in ${lowered(names)}`,
    message: among(group, `${counted(open(first).failures, "attempt")} failed in a row, ${counted(open(first).pending, "call")} pending. ${open(first).last_error}`),
    since: earliest(group.map((each) => open(each).oldest_at)), until: "An attempt succeeds. One call at a time is tried.",
    lost: { level: "good", text: "No. Pending calls are part of the state." }, todo: "Repair what the call asks. Processing of records continues meanwhile.",
  }));
}
