// Other processes that do not answer: what becomes of their partitions. Pure.

import { placed } from "./format.js";
import { ANSWERING, is, isKnown, named, numbers } from "./model.js";

const AWAY = {
  dead: "seems to be dead", unreachable: "does not answer", no_address: "has no HTTP address",
  wrong_address: "advertises an address where something else answers",
};

export function awayProcesses({ lanes, partitions, told }) {
  const isCutOff = told.ready.checks.some((each) => !each.ok && OF_THE_GROUP.includes(each.name));
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
