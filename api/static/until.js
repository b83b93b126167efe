// Until when a restore lasts: its prediction less what is over, and how far off earlier predictions were. Pure.

import { counted, roughly } from "./format.js";

// What the restores and drills of all partitions took, by what was predicted for them.
export function ratiosOf(partitions) {
  return partitions.flatMap(({ restore, drill }) => {
    const found = [];
    const forecast = restore?.forecast;
    if (forecast && restore.finished_at && restore.attempts === 1 && !restore.warm) {
      found.push({ seconds: forecast.seconds, ratio: 1 + (new Date(restore.finished_at) - new Date(forecast.live_at)) / 1000 / forecast.seconds });
    }
    if (drill?.state === "succeeded" && drill.predicted_seconds) found.push({ seconds: drill.predicted_seconds, ratio: drill.seconds / drill.predicted_seconds });
    return found.filter(({ ratio }) => ratio > 0);
  });
}

// A restore that is under way: null, what it has to do is not known. A much smaller one says little of its error.
export function ending({ restore }, past, nowMs) {
  const forecast = restore?.forecast;
  if (!forecast || restore.finished_at) return null;
  const left = (new Date(forecast.live_at) - nowMs) / 1000;
  const stage = restore.progress?.eta_seconds ?? 0;
  const ratios = past.filter((each) => each.seconds >= forecast.seconds / 10).map((each) => each.ratio);
  const by = (ratio) => left + forecast.seconds * (ratio - 1);
  const [low, high] = [Math.min(1, ...ratios), Math.max(1, ...ratios)];
  return { forecast, stage, ratios, low: Math.max(stage, by(low)), high: Math.max(stage, by(high)), isLate: by(high) <= 0, nowMs };
}

export function inWords({ forecast, stage, ratios, low, high, isLate, nowMs }) {
  if (isLate) {
    return `Not known, as it takes longer than predicted (${roughly(forecast.seconds)})${ratios.length ? ` and than others took` : ""}.${stage ? ` This stage takes about ${roughly(stage)} more.` : ""}`;
  }
  if (!ratios.length) return `In about ${roughly(high)}${at(high, nowMs)}, if the prediction holds. Its error is not known: no restore of this size has been measured yet.`;
  const [first, last] = [roughly(low), roughly(high)];
  return `In ${first === last ? `about ${last}` : `${first} to ${last}`}${at(high, nowMs)}. ${counted(ratios.length, "restore")} took ${times(ratios)} ${ratios.length === 1 ? "its" : "their"} prediction.`;
}

function times(ratios) {
  const [low, high] = [Math.min(...ratios), Math.max(...ratios)].map((each) => (each < 9.5 ? each.toPrecision(each < 0.95 ? 1 : 2) : each.toFixed(0)));
  return low === high ? `${low} times` : `${low} to ${high} times`;
}

// The end on the clock, where it is later than the minute of now.
function at(seconds, nowMs) {
  if (seconds < 60) return "";
  return ` (by ${new Date(nowMs + seconds * 1000 + 59_999).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })})`;
}
