// How values are written. Pure.

const FIGURES = new Intl.NumberFormat("en-US"); // toLocaleString makes one each time

export const count = (n) => (n === null || n === undefined ? "–" : FIGURES.format(n));

export const counted = (n, word, many = `${word}s`) => `${count(n)} ${n === 1 ? word : many}`;

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  for (; n >= 999.5 && step < units.length - 1; step++) n /= 1000;
  return `${step === 0 || n >= 99.5 ? Math.round(n) : n.toFixed(1)} ${units[step]}`;
}

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 99.5) return `${Math.round(s)} s`;
  if (s < 5970) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

// Of something that is only predicted.
export function roughly(s) {
  const step = s < 10 ? 1 : s < 90 ? 5 : s < 600 ? 60 : 300;
  const rounded = Math.max(1, Math.round(s / step) * step);
  return (rounded <= 90 ? `${rounded} s` : seconds(rounded)).replace(" ", "\u00a0");
}

// Of something that takes milliseconds, or less.
export const latency = (s) => (s === null || s === undefined || s >= 0.9995 ? seconds(s) : s < 0.00095 ? `${Math.round(s * 1e6)} µs` : s < 0.00995 ? `${(s * 1000).toFixed(1)} ms` : `${Math.round(s * 1000)} ms`);

export const rate = (n, unit) =>
  n === null || n === undefined ? "" : unit === "bytes" ? `${bytes(n)}/s` : `${count(Math.round(n))} records/s`;

// A rate beside its unit: small ones with a digit behind the point.
export const perSecond = (n) => (n === null || n === undefined ? "–" : n > 0 && n < 10 ? n.toFixed(1) : count(Math.round(n)));

// A process and its host. Its name may be the host's: a pod of a StatefulSet.
export const placed = (name, host) => (name === host ? name : `${name} on ${host}`);

export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const UNSEEN = /[\p{Cc}\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

// Characters that cannot be seen, or change the direction of the text beside them, are written as in JSON.
export const visible = (text) => text.replace(UNSEEN, (each) => {
  const written = JSON.stringify(each).slice(1, -1);
  return written === each ? `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}` : written;
});

const sameDay = (a, b) => a.toDateString() === b.toDateString();

// A time of this day, or with its date. In the zone of the browser; the tooltip has it in UTC, as the log.
export function clock(text, nowMs) {
  const at = new Date(text);
  const time = at.toLocaleTimeString("en-GB");
  return sameDay(at, new Date(nowMs)) ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

export const utc = (text) => `${new Date(text).toISOString().slice(0, 19).replace("T", " ")} UTC`;

// The zone of the browser, in which all times are shown: "UTC+1 (Europe/Berlin)".
export function zone(nowMs) {
  const minutes = -new Date(nowMs).getTimezoneOffset();
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const offset = minutes ? `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}` : "UTC";
  return name === "UTC" ? offset : `${offset} (${name})`;
}

export const ageSeconds = (text, nowMs) => Math.max(0, (nowMs - new Date(text).getTime()) / 1000);

export const ago = (text, nowMs) => {
  const age = ageSeconds(text, nowMs);
  return age < 1 ? "now" : `${age < 10 ? `${Math.round(age)} s` : seconds(age)} ago`;
};

export const lowered = (text) => text.charAt(0).toLowerCase() + text.slice(1);
