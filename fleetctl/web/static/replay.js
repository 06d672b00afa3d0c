/** Replay: a slider over the log that shows every view as at a moment. */

import { call, seqAfter } from "./api.js";
import { h, replace } from "./dom.js";
import { dayTime, iso, moment, now, units } from "./format.js";
import { at as replayed, changed, go } from "./route.js";

const { MINUTE, HOUR, DAY } = units;
const SPANS = [[HOUR, "1 hour"], [6 * HOUR, "6 hours"], [DAY, "1 day"], [7 * DAY, "1 week"], [0, "all"]];
const STEPS = 720;
const WAIT = 120;

export class Replay {
  constructor(host) {
    this.span = HOUR;
    this.first = null;
    this.live = h("button", { type: "button", class: "live", id: "live", onclick: () => this.goLive() }, "Live");
    this.slider = h("input", {
      type: "range", id: "slider", min: 0, max: STEPS, value: STEPS, step: 1, "aria-label": "As at",
      oninput: () => this.slide(), onchange: () => this.slide(),
    });
    this.output = h("output", { class: "numbers", for: "slider", id: "as-at" });
    this.exact = h("input", {
      type: "datetime-local", step: 1, "aria-label": "Exact time",
      onchange: () => this.exact.value && this.show(new Date(this.exact.value).getTime()),
    });
    this.choice = h("select", { "aria-label": "Span of the slider", onchange: () => { this.span = Number(this.choice.value); this.draw(); } },
      SPANS.map(([span, label]) => h("option", { value: span }, label)));
    const step = (label, title, by) => h("button", { type: "button", title, "aria-label": title, onclick: () => this.step(by) }, label);
    replace(host,
      this.live,
      h("div", { class: "replay-steps" }, step("‹", "The event before", -1), step("›", "The event after", 1)),
      this.slider, this.output, h("div", { class: "replay-more" }, this.exact, this.choice));
    this.host = host;
  }

  /** Learn when the log begins. */
  async learn() {
    const { events } = await call("event.list", { limit: 1 });
    this.first = events.length ? Date.parse(events[0].timestamp) : null;
    this.draw();
  }

  get start() {
    const end = now();
    if (this.first === null) return end - (this.span || DAY);
    const all = Math.min(this.first, end - MINUTE);
    return this.span === 0 ? all : Math.max(all, end - this.span);
  }

  /** Show the route's moment. */
  draw() {
    const given = replayed();
    const end = now();
    if (given) {
      const ms = Date.parse(given);
      // A moment before the slider's begin needs a longer span.
      if (ms < this.start) {
        this.span = (SPANS.find(([span]) => span && end - ms <= span) ?? [0])[0];
      }
      const place = ((ms - this.start) / Math.max(1, end - this.start)) * STEPS;
      if (document.activeElement !== this.slider || Math.abs(Number(this.slider.value) - place) > 1) {
        this.slider.value = String(Math.round(place));
      }
      this.exact.value = localInput(ms);
      replace(this.output, "as at ", h("strong", {}, moment(ms)));
    } else {
      this.slider.value = String(STEPS);
      this.exact.value = "";
      replace(this.output, this.first ? `log since ${this.first > now() - DAY ? moment(this.first) : dayTime(this.first)}` : "");
    }
    this.choice.value = String(this.span);
    this.slider.setAttribute("aria-valuetext", given ? `as at ${moment(Date.parse(given))}` : "live");
    this.live.setAttribute("aria-pressed", String(!given));
    this.host.classList.toggle("replaying", Boolean(given));
    document.documentElement.toggleAttribute("data-replaying", Boolean(given));
  }

  slide() {
    const value = Number(this.slider.value);
    clearTimeout(this.waiting);
    if (value >= STEPS) return this.goLive();
    const ms = this.start + ((now() - this.start) * value) / STEPS;
    this.output.textContent = `as at ${moment(ms)}`;
    this.slider.setAttribute("aria-valuetext", `as at ${moment(ms)}`);
    this.waiting = setTimeout(() => this.show(ms), WAIT);
    return undefined;
  }

  show(ms) {
    clearTimeout(this.waiting);
    if (!Number.isFinite(ms)) return;
    if (ms >= now()) this.goLive();
    else go(changed({ at: iso(ms), before: null }), Boolean(replayed()));
  }

  goLive() {
    clearTimeout(this.waiting);
    go(changed({ at: null, before: null }));
  }

  /** Go to the event before or after the moment. */
  async step(by) {
    const given = replayed();
    let found;
    if (by > 0) {
      if (!given) return;
      const since = iso(Date.parse(given) + 1);
      found = (await call("event.list", { since_time: since, limit: 1 })).events[0];
      if (!found) return this.goLive();
    } else {
      const present = given ? await seqAfter(given) : undefined;
      const { events } = await call("event.list", { newest: true, before: present, limit: 100 });
      found = events.find((event) => !given || Date.parse(event.timestamp) < Date.parse(given));
      if (!found) return;
    }
    this.show(Date.parse(found.timestamp));
  }
}

function localInput(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * MINUTE);
  return date.toISOString().slice(0, 19);
}
