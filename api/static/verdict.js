// All of it in one sentence: healthy, or how much is down; whether anything is lost; what a sum leaves out. Pure.

import { counted, lowered } from "./format.js";
import { ANSWERING, LEVELS, is, named, numbers } from "./model.js";

// Which partitions the lag of the app leaves out, and why: "without partition 3, which is down".
export function withoutLag({ partitions, missing }) {
  const out = partitions.filter((each) => each.level === "unknown" || each.lag === null);
  const all = [...numbers(out), ...missing];
  if (!all.length) return "";
  const [level, ...others] = new Set([...out.map((each) => each.level), ...missing.map(() => "bad")]);
  const isKnown = !others.length && ["bad", "busy"].includes(level);
  return `without ${lowered(named(all))}, ${isKnown ? `which ${is(all)} ${LEVELS[level]}` : "whose lag is not known"}`;
}

export function verdict(all) {
  const { problems } = all;
  const level = ["bad", "busy", "warn"].find((each) => problems.some((one) => one.level === each)) ?? "good";
  return { level, headline: headline(all, level), summary: summary(all) };
}

function headline({ facts, partitions, missing, problems }, level) {
  if (level === "good") return "Healthy";
  const worst = problems.filter((each) => each.level === level);
  const away = [...numbers(partitions.filter((each) => each.level === level)), ...(level === "bad" ? missing : [])];
  const sum = `${away.length} of ${counted(facts.partition_count, "partition")} ${is(away)} ${LEVELS[level]}`;
  // Problems of these partitions are one line: how many they are. Others are not hidden by it.
  const isCounted = ({ partitions: its }) => level !== "warn" && facts.partition_count > 1 && its?.length && its.every((each) => away.includes(each));
  const lines = [...new Set(worst.map((each) => (isCounted(each) ? sum : each.what)))];
  const [first, next] = lines;
  const second = first === sum ? next && lowered(next) : lines.find((each) => each === sum);
  const more = lines.length - (second ? 2 : 1);
  return `${first}${second ? `; ${second}` : ""}${more ? `, and ${more} more` : ""}`;
}

function summary({ facts, partitions, lanes }) {
  const held = facts.partition_count;
  if (facts.waiting_for) return "Nothing is processed until it has.";
  if (held === null) return "The app's topics have not been seen yet.";
  const live = partitions.filter((each) => each.phase === "live" && each.level !== "unknown").length;
  const unknown = partitions.filter((each) => each.level === "unknown").length;
  const among = lanes.filter(({ process }) => ANSWERING.includes(process.state)).length;
  const many = live === held ? "All" : `${live || "None"} of`;
  const words = held === 1 ? `Its only partition is ${live ? "" : "not "}live` : `${many} ${held} partitions ${live === 1 ? "is" : "are"} live`;
  return `${words}, in ${counted(among, "process", "processes")} that ${among === 1 ? "answers" : "answer"}.${unknown ? ` ${unknown} ${unknown === 1 ? "is" : "are"} not known.` : ""}`;
}

// Whether anything is lost, of all that is live: the proofs of the restores, and decisions.
export function safety({ partitions }) {
  const live = partitions.filter((each) => each.phase === "live" && each.level !== "unknown");
  if (!live.length) return null;
  const proven = live.filter((each) => each.proof?.equal).length;
  const findable = live.filter((each) => each.recoverable === true).length;
  const decided = partitions.reduce((sum, each) => sum + each.decisions.length, 0);
  const parts = [];
  if (proven) parts.push(`${proven} of ${live.length} restored ${proven === 1 ? "state equals" : "states equal"} the recorded digest`);
  parts.push(findable === live.length ? "a restart would find all it needs" : `a restart was checked for ${findable} of ${live.length}`);
  return `Nothing is known to be lost: ${parts.join("; ")}.${decided ? ` ${counted(decided, "decision")} changed the state (below).` : ""}`;
}
