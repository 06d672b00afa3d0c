/** Times, durations, numbers and paths as people read them. */

import { h } from "./dom.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
export const units = { SECOND, MINUTE, HOUR, DAY };

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const clockShort = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});
const dayAndClock = new Intl.DateTimeFormat(undefined, {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// The daemon's clock, which may differ from the browser's.
let ahead = 0;

/** Learn what time it is for the daemon. */
export function setNow(iso) {
  const now = Date.parse(iso);
  if (Number.isFinite(now)) ahead = now - Date.now();
}

/** The present time of the daemon, in ms. */
export function now() {
  return Date.now() + ahead;
}

export function iso(ms) {
  return new Date(Math.round(ms)).toISOString();
}

export const number = (value) => whole.format(value ?? 0);
export const compact = (value) => short.format(value ?? 0);

/** "3 agents", "1 agent". */
export function plural(count, noun, nouns = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : nouns}`;
}

/** A duration with two units at most: "4 min", "2 h 5 min", "3 d 4 h". */
export function duration(ms) {
  const abs = Math.max(0, ms);
  if (abs < SECOND) return `${Math.round(abs)} ms`;
  if (abs < MINUTE) return `${Math.floor(abs / SECOND)} s`;
  if (abs < HOUR) return `${Math.floor(abs / MINUTE)} min`;
  const [big, unit, small, rest] =
    abs < DAY ? [HOUR, "h", MINUTE, "min"] : [DAY, "d", HOUR, "h"];
  const left = Math.floor((abs % big) / small);
  return `${Math.floor(abs / big)} ${unit}` + (left ? ` ${left} ${rest}` : "");
}

/** "4 min ago", or "in 4 min". */
export function relative(ms, to = now()) {
  const past = to - ms;
  if (Math.abs(past) < SECOND) return "now";
  return past < 0 ? `in ${duration(-past)}` : `${duration(past)} ago`;
}

export const clockTime = (ms) => clock.format(ms);
export const clockMinute = (ms) => clockShort.format(ms);
export const dayTime = (ms) => day.format(ms);
export const fullTime = (ms) => full.format(ms);

/** The clock today, with the day on others. */
export function moment(ms, to = now()) {
  const sameDay = new Date(ms).toDateString() === new Date(to).toDateString();
  return sameDay ? clock.format(ms) : dayAndClock.format(ms);
}

/** A time that shows how long ago it is and keeps up, with the full time as its title. */
export function ago(at, to = null) {
  if (!at) return "–";
  const ms = Date.parse(at);
  const attributes = { datetime: at, title: full.format(ms) };
  if (to === null) attributes["data-ago"] = "";
  return h("time", attributes, relative(ms, to ?? now()));
}

/** How long something lasts by now, and keeps up. */
export function since(at, to = null) {
  if (!at) return "–";
  const ms = Date.parse(at);
  const attributes = { datetime: at, title: `since ${full.format(ms)}` };
  if (to === null) attributes["data-since"] = "";
  return h("time", attributes, duration((to ?? now()) - ms));
}

/** A time of day, with the full time as its title. */
export function at(stamp) {
  if (!stamp) return "–";
  const ms = Date.parse(stamp);
  return h("time", { datetime: stamp, title: full.format(ms) }, moment(ms));
}

/** Let all relative times keep up. */
export function tick(root) {
  const present = now();
  for (const node of root.querySelectorAll("time[data-ago], time[data-since]")) {
    const ms = Date.parse(node.getAttribute("datetime"));
    const text = node.hasAttribute("data-ago") ? relative(ms, present) : duration(present - ms);
    if (node.firstChild && node.firstChild.data !== text) node.firstChild.data = text;
  }
}

/** The end of a long path, which says most; the whole is the title. */
export function path(text, inside = null) {
  let shown = text ?? "–";
  if (inside && shown.startsWith(inside.replace(/\/$/, "") + "/")) {
    shown = shown.slice(inside.replace(/\/$/, "").length + 1);
  }
  return h("code", { class: "path", title: text }, shown);
}

// They turn the order of what stands behind them, and SVG cannot keep them inside of a text.
const TURNS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

/** One line of a longer text. */
export function line(text, most = 240) {
  const flat = String(text ?? "").replace(/\s+/gu, " ").replace(TURNS, "\ufffd").trim();
  return flat.length > most ? `${flat.slice(0, most - 1).trimEnd()}…` : flat;
}
