/** The dialog above a view: an event, or the keyboard shortcuts. */

import { call } from "./api.js";
import { h, replace } from "./dom.js";
import { sentence } from "./events.js";
import { ago, fullTime, line } from "./format.js";
import { story } from "./mission.js";
import { at, changed, current, go, href } from "./route.js";
import { agentLink, errorBox, loading, missionLink } from "./ui.js";

const dialog = document.getElementById("dialog");
const AROUND = 6;
let shown = null;

dialog.addEventListener("close", () => {
  shown = null;
  if (current().params.has("event")) go(changed({ event: null, kind: null, count: null }), true);
});
// A click beside the dialog closes it.
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

function open(title, ...content) {
  replace(dialog,
    h("div", { class: "dialog-head" },
      h("h2", { id: "dialog-title" }, title),
      h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => dialog.close() }, "Close")),
    h("div", { class: "dialog-body" }, content));
  if (!dialog.open) dialog.showModal();
}

/** Show the event of the route, or close what is shown. */
export async function showEvent(route) {
  const wanted = route.params.get("event");
  if (!wanted) {
    if (shown !== null && dialog.open) dialog.close();
    return;
  }
  const place = `${wanted} ${route.params.get("count")}`;
  if (shown === place) return;
  shown = place;
  open("Event", loading());
  try {
    const seq = Number(wanted);
    const { events: [event] } = await call("event.list", { since: seq - 1, limit: 1 });
    if (shown !== place) return;
    if (!event || event.seq !== seq) {
      open("Event", h("p", {}, "This event is no longer in the log."));
      return;
    }
    const beside = await around(event, Number(route.params.get("count")) || 0);
    if (shown === place) open(line(sentence(event), 300), details(event), beside);
  } catch (error) {
    if (shown === place) open("Event", errorBox(error));
  }
}

function details(event) {
  const rows = [
    ["Time", [h("time", { datetime: event.timestamp }, fullTime(Date.parse(event.timestamp))), " · ", ago(event.timestamp)]],
    ["Type", h("code", {}, event.type)],
    ["Place in the log", String(event.seq)],
    event.agent_id && ["Agent", agentLink(event.agent_id)],
    event.mission_id && ["Mission", missionLink(event.mission_id)],
    ...Object.entries(event.data ?? {}).filter(([, value]) => value !== null && value !== "").map(([name, value]) =>
      [name.replaceAll("_", " "), h("span", { class: "said" }, typeof value === "string" ? value : JSON.stringify(value))]),
  ].filter(Boolean);
  return [
    h("dl", { class: "pairs" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("p", {}, h("a", { href: href(current().view, current().id, { ...Object.fromEntries(current().params), event: null, kind: null, count: null, at: event.timestamp }) }, "Show this view as at this moment")),
  ];
}

/** What the same agent, or the mission, did before and after; all of a cluster. */
async function around(event, count) {
  const whose = event.agent_id ? { agent_id: event.agent_id } : event.mission_id ? { mission_id: event.mission_id } : {};
  const [before, after] = await Promise.all([
    call("event.list", { ...whose, newest: true, before: event.seq, limit: AROUND }),
    call("event.list", { ...whose, since: event.seq - 1, limit: Math.max(AROUND, Math.min(count * 4, 200)) }),
  ]);
  // In a replay, nothing is known of what came later.
  const end = at() === null ? Infinity : Math.max(Date.parse(at()), Date.parse(event.timestamp));
  const known = after.events.filter((each) => Date.parse(each.timestamp) <= end);
  const list = [...known.toReversed(), ...before.events];
  return h("section", { class: "around", "aria-labelledby": "around" },
    h("h3", { id: "around" }, count > 1 ? `${count} of a kind, and what was around them` : "Around it"), story(list));
}

const SHORTCUTS = [
  ["1 2 3 4", "Now, Timeline, Missions, Search"],
  ["/", "search"],
  ["r", "the slider of the replay; arrows move it"],
  ["l", "live"],
  ["[ and ]", "the event before and after, as replay"],
  ["t", "light, dark or the system's colours"],
  ["?", "this list"],
  ["Esc", "close a dialog"],
];
const IN_TIMELINE = [
  ["arrows", "choose an agent, a sortie or a mark"],
  ["Enter", "open it"],
  ["Shift+arrows", "move in time"],
  ["+ and −", "zoom"],
  ["0", "follow"],
];

/** Show the keyboard shortcuts, with a way to turn single keys off. */
export function showHelp(shortcuts) {
  const rows = (list) => h("dl", { class: "pairs keys" }, list.map(([keys, what]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)]));
  shown = null;
  open("Keyboard shortcuts", rows(SHORTCUTS), h("h3", {}, "In the timeline"), rows(IN_TIMELINE),
    h("label", { class: "check" },
      h("input", { type: "checkbox", checked: shortcuts.on && "", onchange: (event) => shortcuts.turn(event.target.checked) }),
      " Single keys are shortcuts"));
}
