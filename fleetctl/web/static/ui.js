/** Parts that several views share. */

import { h, size } from "./dom.js";
import { number } from "./format.js";
import { href, changed } from "./route.js";

/** A section with a heading; `count` stands beside it. */
export function panel(title, content, { id, count = null, note = null, level = 2 } = {}) {
  return h(
    "section",
    { class: "panel", id, "aria-labelledby": id && `${id}-title`, "data-key": id },
    h("div", { class: "panel-head" },
      h(`h${level}`, { id: id && `${id}-title` }, title,
        count === null ? null : [" ", h("span", { class: "count" }, number(count))]),
      note && h("p", { class: "hint" }, note)),
    content,
  );
}

/** What stands where nothing is, and what to do about it. */
export const empty = (...text) => h("p", { class: "empty" }, text);

export const code = (text) => h("code", {}, text);

/**
 * A table. Columns are `[label, class]`; a row is `{key, cells, class}` with one cell per column.
 * The roles stay when a narrow window lays rows out as cards.
 */
export function table(caption, columns, rows, { cards = true, compact = false } = {}) {
  const head = columns.map(([label, kind]) =>
    h("th", { scope: "col", role: "columnheader", class: kind }, label));
  const body = rows.map(({ key, cells, class: kind }) =>
    h("tr", { "data-key": key, class: kind, role: "row" },
      cells.map((cell, n) => {
        const [label, column] = columns[n];
        const first = n === 0;
        return h(first ? "th" : "td", {
          class: column,
          scope: first && "row",
          role: first ? "rowheader" : "cell",
          "data-label": first ? null : label,
          "data-empty": cell === "–" || cell === "" || cell === null,
        }, cell);
      })));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { role: "table", class: [cards && "cards", compact && "compact"].filter(Boolean).join(" ") },
      h("caption", { class: "hidden-text" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      h("tbody", { role: "rowgroup" }, body)));
}

const WORDS = {
  in_progress: "in progress",
  plan_approval: "plan approval",
  "ruled-out": "ruled out",
};
const TONES = {
  permission: "ask", question: "ask", plan_approval: "ask", failed: "bad", limit: "warn", lost: "bad",
  finished: "done", background: "busy", active: "busy", in_progress: "busy", completed: "done",
  blocked: "warn", waiting: "ask", cancelled: "off", gone: "off", idle: "off", pending: "off",
  assigned: "off", PASS: "done", FAIL: "bad", resumed: "done", briefed: "busy", unconfirmed: "warn",
};

export const words = (name) => WORDS[name] ?? String(name).replaceAll("_", " ");

/** A state as a word with a mark beside it. */
export function badge(name, label = words(name)) {
  return h("span", { class: `badge ${TONES[name] ?? "off"}` }, label);
}

export function progress(percent, label) {
  const bar = size(h("span", { class: "progress-fill" }), "inline-size", `${Math.min(100, percent)}%`);
  return h("span", { class: "progress" },
    h("span", { class: "progress-bar", "aria-hidden": "true" }, bar),
    h("span", { class: "progress-text" }, label ?? `${percent}%`));
}

export const agentLink = (id) => (id ? h("a", { href: href("agent", id), class: "agent" }, id) : "–");

export function missionLink(id, title) {
  return id ? h("a", { href: href("mission", id) }, title || id) : "–";
}

/** A link that opens an event above the present view. */
export function eventLink(seq, ...text) {
  return h("a", { href: changed({ event: seq }), class: "event-link" }, text);
}

/** An error with what to do about it, and a button that tries again. */
export function errorBox(error, again = null) {
  return h("div", { class: "notice error", role: "alert" },
    h("p", {}, h("strong", {}, error.message)),
    error.hint && h("p", {}, error.hint),
    again && h("button", { type: "button", onclick: again }, "Try again"));
}

export const loading = () => h("p", { class: "loading", role: "status" }, "Loading …");

/** A list of what is on the page already, up to `most`, with a button for the rest. */
export function more(hidden, onclick) {
  return hidden > 0 && h("button", { type: "button", class: "more", onclick }, `Show ${number(hidden)} more`);
}

/** The title of a page with a line of facts below it. */
export function heading(title, facts = [], ...extra) {
  return h("div", { class: "page-head" },
    h("h1", {}, title),
    facts.length > 0 && h("ul", { class: "facts" }, facts.map((fact) => h("li", {}, fact))),
    extra);
}

export const fact = (label, value) => [h("span", { class: "label" }, label), " ", value];
