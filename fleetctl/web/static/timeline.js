/**
 * Timeline: a row per agent, grouped by machine and mission; bars are sorties, marks are what
 * happened. Drawn as SVG. Only rows in sight are in the document, and marks of one kind in one row
 * are one path, so the size of the fleet does not count.
 */

import { call } from "./api.js";
import { h, replace, s, size } from "./dom.js";
import { clockMinute, clockTime, dayTime, duration, fullTime, iso, line, moment, now, plural, units } from "./format.js";
import { at as replayed, changed, current, go, href } from "./route.js";
import { agentLink, badge, code, empty, eventLink, missionLink, table, words } from "./ui.js";

const { SECOND, MINUTE, HOUR, DAY } = units;
const SHORTEST = MINUTE;
const LONGEST = 7 * DAY;
const SPANS = [[15 * MINUTE, "15 min"], [HOUR, "1 h"], [6 * HOUR, "6 h"], [DAY, "1 day"], [7 * DAY, "1 week"]];
const FIRST_SPAN = HOUR;
// So many rows are in sight at once, and so many are read once somebody looks below them.
const FIRST_ROWS = 40;
const ROWS = 500;
const TICKS = [10 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY];

/** The kinds of marks: the label, and the shape around (x, y) with the radius r. */
const KINDS = {
  needs: ["needs a person", (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`],
  compaction: ["compaction", (x, y, r) => `M${x - r} ${y - r}h${2 * r}l${-2 * r} ${2 * r}h${2 * r}z`],
  briefing: ["briefing", (x, y, r) => `M${x - r + 1} ${y - r}h${r}l${r - 2} ${r - 2}v${r + 2}h${2 - 2 * r}z`],
  checkpoint: ["checkpoint", (x, y, r) => `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z`],
  recovery: ["recovery", (x, y, r) => `M${x} ${y - r - 1}l${r + 1} ${2 * r}h${-2 * r - 2}z`],
  lock_wait: ["lock wait", (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}zM${x - r + 3} ${y - r + 3}v${2 * r - 6}h${2 * r - 6}v${6 - 2 * r}z`],
  mail: ["mail", (x, y, r) => `M${x - r - 1} ${y - r + 1}l${r + 1} ${r}l${r + 1} ${-r}v${2 * r - 2}h${-2 * r - 2}z`],
  error: ["error", (x, y, r) => `M${x - r} ${y - r + 2}l2 -2l${r - 2} ${r - 2}l${r - 2} ${2 - r}l2 2l${2 - r} ${r - 2}l${r - 2} ${r - 2}l-2 2l${2 - r} ${2 - r}l${2 - r} ${r - 2}l-2 -2l${r - 2} ${2 - r}z`],
};
const RADIUS = 5;
const GROUP = 26;
const AXIS = 30;

export class Timeline {
  constructor(main, announce, reload) {
    this.announce = announce;
    this.reload = reload;
    this.hidden = new Set();
    this.data = null;
    this.limit = FIRST_ROWS;
    this.items = [];
    this.selected = null;
    this.pointers = new Map();
    this.settling = null;
    this.build(main);
    this.resize = new ResizeObserver(() => this.layout());
    this.resize.observe(this.chart);
  }

  unmount() {
    this.resize.disconnect();
    clearTimeout(this.settling);
  }

  build(main) {
    const button = (label, title, onclick) => h("button", { type: "button", title, "aria-label": title, onclick }, label);
    this.presets = h("div", { class: "choices", role: "group", "aria-label": "Span" },
      SPANS.map(([span, label]) => h("button", { type: "button", "data-span": span, onclick: () => this.setSpan(span) }, label)));
    this.following = h("button", { type: "button", onclick: () => this.follow() }, "Follow");
    this.range = h("p", { class: "range numbers" });
    this.filters = h("div", { class: "legend", role: "group", "aria-label": "Marks that are shown" },
      Object.entries(KINDS).map(([kind, [label, shape]]) =>
        h("button", { type: "button", "data-kind": kind, "aria-pressed": "true", onclick: (event) => this.toggle(kind, event.currentTarget) },
          s("svg", { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
            s("path", { class: `mark k-${kind}`, d: shape(8, 8, RADIUS) })), label)));
    this.only = h("p", { class: "only" });
    this.axis = s("svg", { class: "axis", "aria-hidden": "true", focusable: "false", height: AXIS });
    this.svg = s("svg", { class: "rows", "aria-hidden": "true", focusable: "false" });
    this.scroller = h("div", { class: "tl-scroll" }, this.svg);
    this.tip = h("div", { class: "tip", hidden: true });
    this.chart = h("div", {
      class: "tl", tabindex: 0, role: "application", "aria-roledescription": "timeline",
      "aria-label": "Timeline", "aria-describedby": "tl-keys",
    }, this.axis, this.scroller, this.tip);
    this.message = h("div", { class: "tl-message" });
    this.rest = h("p", { class: "hint" });
    this.alternative = h("details", { class: "alternative", ontoggle: () => {
      this.drawTable();
      this.lookBelow();
    } },
      h("summary", {}, "The same as a table"), this.tableHost = h("div", {}));
    replace(main,
      h("div", { class: "view timeline" },
        h("div", { class: "page-head" }, h("h1", {}, "Timeline"), this.range),
        h("div", { class: "toolbar" },
          h("div", { class: "choices", role: "group", "aria-label": "Move and zoom" },
            button("◀", "Earlier", () => this.pan(-0.5)), button("▶", "Later", () => this.pan(0.5)),
            button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5))),
          this.presets, this.following),
        this.filters, this.only, this.message, this.chart, this.rest,
        h("p", { class: "hint", id: "tl-keys" },
          "Drag or Shift+arrows to move; Ctrl+wheel, pinch, or + and − to zoom; arrows and Enter to open a mark."),
        this.alternative));
    this.listen();
  }

  // -- the span -------------------------------------------------------------------------------

  readRoute(route) {
    const { params } = route;
    const [from, to] = [Date.parse(params.get("from")), Date.parse(params.get("to"))];
    const end = replayed() ? Date.parse(replayed()) : now();
    if (Number.isFinite(from) && Number.isFinite(to) && to > from) {
      this.set(from, to, false);
    } else {
      const span = clamp(Number(params.get("span")) || FIRST_SPAN);
      // Some room right of the last mark.
      this.set(end - span * 0.97, end + span * 0.03, true);
    }
  }

  set(from, to, live) {
    const span = clamp(to - from);
    const middle = (from + to) / 2;
    this.from = middle - span / 2;
    this.to = middle + span / 2;
    this.live = live;
  }

  setSpan(span) {
    if (this.live) return this.follow(span);
    const middle = (this.from + this.to) / 2;
    this.set(middle - span / 2, middle + span / 2, false);
    return this.settle(0);
  }

  follow(span = this.to - this.from) {
    clearTimeout(this.settling);
    this.settling = null;
    const before = location.hash;
    const rounded = Math.round(span);
    go(changed({ span: rounded === FIRST_SPAN ? null : rounded, from: null, to: null }), true);
    // The span had not been written into the route yet.
    if (location.hash === before) this.reload();
  }

  /** Move by a part of the span. */
  pan(part) {
    const by = (this.to - this.from) * part;
    this.set(this.from + by, this.to + by, false);
    this.layout();
    this.settle();
  }

  /** Zoom by a factor around a place, by default the middle, or the end while it follows. */
  zoom(factor, around = this.live ? 0.97 : 0.5) {
    const span = clamp((this.to - this.from) * factor);
    const fixed = this.from + (this.to - this.from) * around;
    if (this.live) return this.follow(span);
    this.set(fixed - span * around, fixed - span * around + span, false);
    this.layout();
    return this.settle();
  }

  /** Write the span into the route once it rests; that reads the marks again. */
  settle(wait = 150) {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = null;
      if (current().view !== "timeline") return;
      go(changed({ from: iso(this.from), to: iso(this.to), span: null }), true);
    }, wait);
  }

  // -- the data -------------------------------------------------------------------------------

  async load({ at, route, signal }) {
    // While somebody moves the chart, the route is behind it.
    if (this.from === undefined || (this.settling === null && !this.pointers.size)) this.readRoute(route);
    this.layout();
    const end = Math.min(this.to, at ? Date.parse(at) : now() + SECOND);
    const agent = route.params.get("agent");
    const mission = route.params.get("mission");
    this.drawOnly(agent, mission);
    const share = (end - this.from) / (this.to - this.from);
    const wanted = {
      since: iso(this.from), until: iso(end),
      width: Math.max(1, Math.round(Math.min(400, this.plot / 14) * share)),
      agent_id: agent, mission_id: mission,
    };
    let data = { rows: [], more: 0, first_at: null };
    if (end > this.from) {
      const [found, fleet] = await Promise.all([
        call("timeline.get", { ...wanted, limit: this.limit }, signal), at && fleetAt(at, signal)]);
      data = at ? { ...found, rows: asAt(found.rows, fleet) } : found;
    }
    const started = performance.now();
    this.data = data;
    this.cut = at ? Date.parse(at) : null;
    this.arrange();
    this.layout();
    performance.measure("timeline drawn", { start: started });
    this.tell();
    // Not within this load, which another one would end.
    setTimeout(() => this.lookBelow());
    return { title: "Timeline" };
  }

  /** Whether an event can change what is shown: none that comes now changes a span of the past. */
  concerns() {
    return this.live || this.to >= now();
  }

  /** Let time go on where nothing happens. */
  tick() {
    if (!this.live || replayed() || this.pointers.size || this.settling !== null || !this.data) return;
    const span = this.to - this.from;
    this.set(now() - span * 0.97, now() + span * 0.03, true);
    this.layout();
  }

  drawOnly(agent, mission) {
    replace(this.only,
      (agent || mission) && ["Only ", agent ? agentLink(agent) : missionLink(mission), " ",
        h("a", { href: changed({ agent: null, mission: null }) }, "Show all")]);
  }

  /** Put rows into groups, and the bars and marks of each row into the order of time. */
  arrange() {
    const timeline = this;
    this.items = [];
    let group = null;
    for (const row of this.data.rows) {
      const key = `${row.machine ?? ""}/${row.mission_id ?? ""}`;
      if (key !== group) {
        group = key;
        this.items.push({ group: true, row, text: [row.mission ?? (row.mission_id || "No mission"), row.machine_name].filter(Boolean).join(" — ") });
      }
      // Only rows that come into sight pay for the order of their things.
      let things = null;
      this.items.push({ row, get things() { return (things ??= timeline.thingsOf(row)); } });
    }
  }

  thingsOf(row) {
    return [
      ...row.bars.map((bar) => ({ bar, start: Date.parse(bar.started_at), end: this.barEnd(bar) })),
      ...row.marks.filter((mark) => mark.kind in KINDS).map((mark) => ({ mark, start: Date.parse(mark.at), end: Date.parse(mark.until ?? mark.at) })),
    ].sort((one, other) => one.start - other.start);
  }

  barEnd(bar) {
    const end = bar.ended_at ? Date.parse(bar.ended_at) : Infinity;
    return this.cut !== null && end > this.cut ? Infinity : end;
  }

  /** The state of a sortie at the moment that is shown. */
  status(thing) {
    return thing.end === Infinity && thing.bar.ended_at ? "in_progress" : thing.bar.status;
  }

  tell() {
    const agents = this.data.rows.length;
    const span = duration(this.to - this.from);
    replace(this.message, agents ? null
      : this.data.first_at || this.live === false
        ? empty("Nothing happened in this span. Zoom out, move to another time",
          this.data.first_at ? `; the log begins at ${moment(Date.parse(this.data.first_at))}.` : ".")
        : empty("Nothing happened yet. Run ", code("fleetctl hooks install"), " and start an agent."));
    const more = this.data.more > 0 && `${plural(this.data.more, "more agent")} below these.`;
    replace(this.rest, more && (this.limit < ROWS ? more : `${more} Choose a mission or a shorter span.`));
    this.chart.setAttribute("aria-label", `Timeline of ${plural(agents + this.data.more, "agent")}, ${span} to ${fullTime(Math.min(this.to, this.cut ?? now()))}`);
    this.drawTable();
  }

  /** Read all rows once the end of those that are there comes into sight. */
  lookBelow() {
    const { scrollTop, clientHeight } = this.scroller;
    const near = this.alternative.open || scrollTop + clientHeight > this.height - 5 * this.tall;
    if (!near || this.limit === ROWS || !this.data?.more) return;
    this.limit = ROWS;
    this.reload();
  }

  // -- drawing --------------------------------------------------------------------------------

  get narrow() {
    return this.width < 620;
  }

  get gutter() {
    return this.narrow ? 0 : 168;
  }

  get plot() {
    return Math.max(80, this.width - this.gutter - 10);
  }

  get width() {
    return this.chart.clientWidth;
  }

  get tall() {
    return this.narrow ? 50 : 36;
  }

  x(ms) {
    return this.gutter + ((ms - this.from) / (this.to - this.from)) * this.plot;
  }

  time(x) {
    return this.from + ((x - this.gutter) / this.plot) * (this.to - this.from);
  }

  /** Draw the axis and the rows for the present span and size. */
  layout() {
    if (!this.width) return;
    let y = 0;
    for (const item of this.items) {
      item.y = y;
      y += item.group ? GROUP : this.tall;
    }
    this.height = y;
    this.chart.classList.toggle("empty-chart", !this.items.length);
    this.svg.setAttribute("width", this.width);
    this.svg.setAttribute("height", Math.max(y, 1));
    this.drawAxis();
    this.drawRows();
    replace(this.range, `${moment(this.from)} – ${this.live && !replayed() ? "now" : moment(this.to)} · ${duration(this.to - this.from)}`);
    for (const button of this.presets.children) {
      button.setAttribute("aria-pressed", String(Math.abs(Number(button.dataset.span) / (this.to - this.from) - 1) < 0.01));
    }
    this.following.setAttribute("aria-pressed", String(this.live));
  }

  drawAxis() {
    const step = TICKS.find((each) => (each / (this.to - this.from)) * this.plot >= 70) ?? 2 * DAY;
    const zone = new Date(this.from).getTimezoneOffset() * MINUTE;
    const first = Math.ceil((this.from - zone) / step) * step + zone;
    this.ticks = [];
    const marks = [];
    for (let ms = first; ms <= this.to; ms += step) {
      const x = this.x(ms);
      this.ticks.push(x);
      const midnight = new Date(ms).getHours() === 0 && new Date(ms).getMinutes() === 0 && step >= MINUTE;
      const label = midnight || step >= DAY ? dayTime(ms) : step < MINUTE ? clockTime(ms) : clockMinute(ms);
      marks.push(s("line", { x1: x, x2: x, y1: AXIS - 6, y2: AXIS }), s("text", { x, y: AXIS - 11, class: midnight ? "day" : null }, label));
    }
    this.axis.setAttribute("width", this.width);
    this.axis.replaceChildren(...marks);
  }

  drawRows() {
    const top = this.scroller.scrollTop - this.tall;
    const bottom = this.scroller.scrollTop + (this.scroller.clientHeight || 600) + this.tall;
    const nodes = this.ticks.map((x) => s("line", { class: "grid", x1: x, x2: x, y1: 0, y2: this.height }));
    for (const item of this.items) {
      if (item.y < top - this.tall || item.y > bottom) continue;
      nodes.push(item.group ? this.groupNode(item) : this.rowNode(item));
    }
    const end = this.cut ?? now();
    if (end > this.from && end < this.to) {
      nodes.push(s("line", { class: this.cut ? "cursor" : "present", x1: this.x(end), x2: this.x(end), y1: 0, y2: this.height }));
    }
    this.svg.replaceChildren(...nodes);
  }

  groupNode({ y, text }) {
    return s("g", { class: "group" },
      s("rect", { x: 0, y, width: this.width, height: GROUP }),
      s("text", { x: 8, y: y + 17 }, line(text, Math.floor(this.width / 7))));
  }

  rowNode(item) {
    const { row, y } = item;
    const barY = y + (this.narrow ? 19 : 4);
    const markY = barY + 21;
    const nodes = [
      s("line", { class: "rule", x1: 0, x2: this.width, y1: y + this.tall - 0.5, y2: y + this.tall - 0.5 }),
      s("text", { class: "row-name", x: 8, y: y + (this.narrow ? 13 : 16) }, line(row.led_by ? `↳ ${row.agent_id}` : row.agent_id, this.narrow ? 48 : 22)),
    ];
    if (!this.narrow) nodes.push(s("text", { class: "row-sub", x: 8, y: y + 29 }, line([row.harness, row.status && words(row.status)].filter(Boolean).join(" · "), 26)));
    const paths = new Map();
    let last = -Infinity;
    for (const thing of item.things) {
      if (thing.bar) {
        const bar = this.barNode(thing, barY);
        if (bar) nodes.push(bar);
        continue;
      }
      thing.x = null;
      if (this.hidden.has(thing.mark.kind)) continue;
      const true_ = this.x((thing.start + thing.end) / 2);
      if (true_ < this.gutter - 4 || true_ > this.gutter + this.plot + 4) continue;
      // Beside the one before, as far as that is less than two marks away.
      thing.x = true_ - last < 12 && last + 12 - true_ <= 24 ? last + 12 : true_;
      last = thing.x;
      const many = thing.mark.count > 1;
      const key = `mark k-${thing.mark.kind}${many ? " many" : ""}`;
      paths.set(key, (paths.get(key) ?? "") + KINDS[thing.mark.kind][1](round(thing.x), markY, many ? RADIUS + 1 : RADIUS));
    }
    for (const [kind, d] of paths) nodes.push(s("path", { class: kind, d }));
    const chosen = this.selected && this.selected.agent === row.agent_id ? this.selectedThing(item) : null;
    if (chosen) {
      const [x1, x2] = chosen.bar ? this.barSpan(chosen) : [chosen.x - 8, chosen.x + 8];
      nodes.push(s("rect", { class: "chosen", x: x1 - 2, width: Math.max(4, x2 - x1 + 4), rx: 3, y: chosen.bar ? barY - 2 : markY - 9, height: 18 }));
    } else if (this.selected && this.selected.agent === row.agent_id) {
      nodes.push(s("rect", { class: "chosen", x: 2, width: Math.max(4, (this.gutter || this.width) - 6), rx: 3, y: y + 2, height: this.tall - 5 }));
    }
    return s("g", { class: "row" }, nodes);
  }

  barSpan(thing) {
    const end = Math.min(thing.end, this.cut ?? now());
    return [Math.max(this.gutter, this.x(thing.start)), Math.min(this.gutter + this.plot, this.x(end))];
  }

  barNode(thing, y) {
    const [from, to] = this.barSpan(thing);
    if (to < this.gutter || from > this.gutter + this.plot) return null;
    const width = Math.max(2, to - from);
    const letters = Math.floor((width - 8) / 6);
    return s("g", { class: `bar ${this.status(thing)}` },
      s("rect", { x: round(from), y, width: round(width), height: 14, rx: 2 }),
      letters > 3 && s("text", { x: round(from) + 4, y: y + 11 }, line(thing.bar.title, letters)));
  }

  toggle(kind, button) {
    if (!this.hidden.delete(kind)) this.hidden.add(kind);
    button.setAttribute("aria-pressed", String(!this.hidden.has(kind)));
    this.drawRows();
    this.drawTable();
  }

  // -- pointing -------------------------------------------------------------------------------

  listen() {
    const { chart, scroller } = this;
    scroller.addEventListener("scroll", () => {
      this.drawRows();
      this.lookBelow();
    });
    chart.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    chart.addEventListener("pointerdown", (event) => this.down(event));
    chart.addEventListener("pointermove", (event) => this.move(event));
    chart.addEventListener("pointerup", (event) => this.up(event));
    chart.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    chart.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    chart.addEventListener("dblclick", (event) => this.zoom(0.4, this.share(event)));
    chart.addEventListener("keydown", (event) => this.key(event));
  }

  share(event) {
    const x = event.clientX - this.chart.getBoundingClientRect().left;
    return Math.min(1, Math.max(0, (x - this.gutter) / this.plot));
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const onAxis = event.clientY < this.axis.getBoundingClientRect().bottom;
    if (event.ctrlKey || event.metaKey || onAxis) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 250))), this.live ? undefined : this.share(event));
    } else if (sideways) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / this.plot);
    }
  }

  down(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.moved = this.pointers.size > 1;
    this.tip.hidden = true;
  }

  move(event) {
    // Its button was released outside of the chart.
    if (event.pointerType === "mouse" && !event.buttons) this.pointers.delete(event.pointerId);
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.hover(event);
    const dx = event.clientX - before.x;
    if (!this.moved && Math.abs(dx) < 4) return undefined;
    if (!this.moved) {
      this.moved = true;
      this.chart.setPointerCapture(event.pointerId);
    }
    if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const apart = Math.max(20, Math.abs(event.clientX - other.x));
      const wasApart = Math.max(20, Math.abs(before.x - other.x));
      this.live = false;
      this.zoom(wasApart / apart, this.share({ clientX: (event.clientX + other.x) / 2 }));
    } else {
      this.pan(-dx / this.plot);
    }
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    return undefined;
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId) || this.moved) return;
    const found = this.under(event);
    if (!found) return;
    this.selected = { agent: found.item.row.agent_id, thing: keyOf(found.thing) };
    this.drawRows();
    if (found.thing) this.open(found.item, found.thing);
    else if (found.name) go(href("agent", found.item.row.agent_id));
  }

  /** The row and what of it is under the pointer. */
  under(event) {
    const box = this.svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (event.clientY < this.axis.getBoundingClientRect().bottom) return null;
    const item = this.items.findLast((each) => each.y <= y);
    if (!item || item.group || y > item.y + this.tall) return null;
    const inBars = y - item.y < (this.narrow ? 35 : 20);
    const close = item.things
      .filter((thing) => thing.mark && thing.x !== null && Math.abs(thing.x - x) < 10)
      .sort((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x));
    const bar = item.things.findLast((thing) => {
      if (!thing.bar) return false;
      const [from, to] = this.barSpan(thing);
      return x >= from - 2 && x <= Math.max(to, from + 2) + 2;
    });
    const name = this.narrow ? y - item.y < 17 : x < this.gutter;
    return { item, name, thing: name ? null : (inBars && bar) || close[0] || null };
  }

  hover(event) {
    const found = this.under(event);
    this.chart.classList.toggle("pointing", Boolean(found && (found.thing || found.name)));
    if (!found?.thing) {
      this.tip.hidden = true;
      return;
    }
    const box = this.chart.getBoundingClientRect();
    replace(this.tip, this.describe(found.item, found.thing).map((text, n) => h(n ? "span" : "strong", {}, text)));
    this.tip.hidden = false;
    const left = Math.min(event.clientX - box.left + 12, Math.max(4, box.width - this.tip.offsetWidth - 6));
    size(this.tip, "left", `${left}px`);
    size(this.tip, "top", `${event.clientY - box.top + 16}px`);
  }

  /** What a bar or a mark is, in a few lines. */
  describe(item, thing) {
    if (thing.bar) {
      const end = thing.end === Infinity ? "not ended" : moment(thing.end);
      return [thing.bar.title, `Sortie, ${words(this.status(thing))}`, `${moment(thing.start)} – ${end}`];
    }
    const { kind, count } = thing.mark;
    const when = count > 1 && thing.end > thing.start ? `${moment(thing.start)} – ${clockTime(thing.end)}` : moment(thing.start);
    return [count > 1 ? `${KINDS[kind][0]}: ${count}` : KINDS[kind][0], item.row.agent_id, when];
  }

  /** Open an event, zoom into a cluster or list it, or show the mission of a sortie. */
  open(item, thing) {
    if (thing.bar) return go(href("mission", thing.bar.mission_id));
    const { mark } = thing;
    if (!mark.count) return go(changed({ event: mark.seq }));
    const apart = thing.end - thing.start;
    if (apart * 4 > SHORTEST && apart * 4 < (this.to - this.from) / 2) {
      const middle = (thing.start + thing.end) / 2;
      const half = Math.max(SHORTEST, apart * 4) / 2;
      this.set(middle - half, middle + half, false);
      this.layout();
      return this.settle(0);
    }
    return go(changed({ event: mark.seq, kind: mark.kind, count: mark.count }));
  }

  // -- the keyboard ---------------------------------------------------------------------------

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const rows = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (step && event.shiftKey) this.pan(step * 0.2);
    else if (step) this.choose(0, step);
    else if (rows) this.choose(rows, 0);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.follow();
    else if (event.key === "Enter" && this.selected) this.openSelected();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** What can be chosen in a row: all that is in sight. */
  choices(item) {
    return item.things.filter((thing) => {
      if (thing.mark) return !this.hidden.has(thing.mark.kind) && thing.end >= this.from && thing.start <= this.to;
      return Math.min(thing.end, this.cut ?? now()) >= this.from && thing.start <= this.to;
    });
  }

  choose(rows, step) {
    const list = this.items.filter((item) => !item.group);
    if (!list.length) return;
    let at = list.findIndex((item) => item.row.agent_id === this.selected?.agent);
    const fresh = at < 0;
    at = fresh ? 0 : Math.min(list.length - 1, Math.max(0, at + rows));
    const item = list[at];
    const choices = this.choices(item);
    let place;
    if (step && !fresh) {
      const present = choices.findIndex((thing) => keyOf(thing) === this.selected.thing);
      place = present < 0 ? (step > 0 ? 0 : choices.length - 1) : Math.min(choices.length - 1, Math.max(0, present + step));
    } else if (step) place = 0;
    const thing = place === undefined ? null : choices[place];
    this.selected = { agent: item.row.agent_id, thing: keyOf(thing) };
    if (item.y < this.scroller.scrollTop || item.y + this.tall > this.scroller.scrollTop + this.scroller.clientHeight) {
      this.scroller.scrollTop = Math.max(0, item.y - GROUP);
    }
    this.drawRows();
    this.announce(thing ? this.describe(item, thing).join(", ")
      : `${item.row.agent_id}, ${item.row.mission ?? "no mission"}, ${plural(choices.length, "mark or sortie", "marks and sorties")}`);
  }

  selectedThing(item) {
    const thing = this.selected.thing && item.things.find((each) => keyOf(each) === this.selected.thing);
    return thing && (thing.bar || (thing.x !== null && thing.x !== undefined)) ? thing : null;
  }

  openSelected() {
    const item = this.items.find((each) => !each.group && each.row.agent_id === this.selected.agent);
    if (!item) return;
    const thing = this.selectedThing(item);
    if (thing) this.open(item, thing);
    else go(href("agent", item.row.agent_id));
  }

  // -- the same as a table --------------------------------------------------------------------

  drawTable() {
    if (!this.alternative.open || !this.data) return;
    const rows = this.items.filter((item) => !item.group).slice(0, 200).map((item) => ({
      key: item.row.agent_id,
      cells: [
        [agentLink(item.row.agent_id), h("span", { class: "sub" }, item.row.status && words(item.row.status))],
        item.row.mission_id ? missionLink(item.row.mission_id, item.row.mission) : "–",
        item.row.machine_name ?? "–",
        list(this.choices(item).filter((thing) => thing.bar).map((thing) => [
          thing.bar.title, " ", badge(this.status(thing)), h("span", { class: "sub inline" }, ` ${moment(thing.start)} – ${thing.end === Infinity ? "" : moment(thing.end)}`)])),
        list(this.choices(item).filter((thing) => thing.mark).map((thing) => [
          eventLink(thing.mark.seq, `${moment(thing.start)} ${KINDS[thing.mark.kind][0]}${thing.mark.count > 1 ? ` (${thing.mark.count})` : ""}`)])),
      ],
    }));
    replace(this.tableHost, rows.length
      ? table("Timeline as a table", [["Agent"], ["Mission"], ["Machine"], ["Sorties"], ["What happened", "grow"]], rows)
      : empty("Nothing is in this span."));
  }
}

/** The fleet at a moment; empty where only its events are known. */
async function fleetAt(time, signal) {
  try {
    return await call("fleet.at", { time }, signal);
  } catch (error) {
    if (error.kind === "invalid_state") return { agents: [] };
    throw error;
  }
}

/** The rows with what their agents were and worked in at a moment, those of a mission together. */
function asAt(rows, fleet) {
  const agents = new Map(fleet.agents.map((agent) => [agent.agent_id, agent]));
  const groups = new Map();
  for (const row of rows) {
    const { status = null } = agents.get(row.agent_id) ?? {};
    // A subagent works where the agent of its session does.
    const { mission_id = row.mission_id, mission = row.mission } = agents.get(row.led_by ?? row.agent_id) ?? {};
    const key = `${row.machine ?? ""}/${mission_id ?? ""}`;
    groups.set(key, [...(groups.get(key) ?? []), { ...row, status, mission_id, mission }]);
  }
  return [...groups.values()].flat();
}

const MOST = 40;

function list(items) {
  if (!items.length) return "–";
  return h("ul", { class: "plain" }, items.slice(0, MOST).map((item) => h("li", {}, item)),
    items.length > MOST && h("li", { class: "hint" }, `and ${items.length - MOST} more`));
}

const keyOf = (thing) => (thing ? (thing.bar ? `bar ${thing.bar.sortie_id}` : `${thing.mark.kind} ${thing.mark.seq}`) : null);
const clamp = (span) => Math.min(LONGEST, Math.max(SHORTEST, span));
const round = (value) => Math.round(value * 10) / 10;
