/** Events as sentences, in the words of the command line. */

import { EVENT_TYPES } from "./event_types.js";
import { duration, line, plural } from "./format.js";

const NEEDS = {
  permission: "needs a permission",
  question: "asks a question",
  plan_approval: "wants its plan approved",
  finished: "has finished its turn",
  background: "has work running in the background",
  limit: "reached a limit",
  failed: "broke off its turn",
  lost: "needs a successor",
  none: "waits no longer",
};
const WHY = {
  manual: "by hand", progress: "milestone", error: "after an error", compaction: "before a compaction",
};
const NOTED = {
  permission_request: ["{who} asks for a permission", ": {message}"],
  permission_prompt: ["{who} waits for a permission", ": {message}"],
};
const COUNTED = {
  sorties: "sortie", missions: "mission", agents: "agent", events: "event", errors: "problem",
  sorties_restored: "sortie", locks_restored: "lock", messages_requeued: "message",
};
const INSTEAD = { command: "a command", tool: "a tool", name: "A tool", file: "a file" };
const FIELD = /\{([a-z_]+)\}/g;

/** What happened, as a sentence without a full stop. */
export function sentence(event) {
  const data = event.data && typeof event.data === "object" ? event.data : {};
  const known = EVENT_TYPES[event.type];
  const pieces = (event.type === "hook_noted" && NOTED[data.what]) || known?.[0] || [];
  if (!pieces.length) {
    const what = String(event.type).replaceAll("_", " ");
    return event.agent_id ? `${event.agent_id}: ${what}` : what;
  }
  const [first, ...more] = pieces;
  return (
    filled(first, event, data) +
    more
      .filter((piece) => [...piece.matchAll(FIELD)].every(([, name]) => field(name, event, data)))
      .map((piece) => filled(piece, event, data))
      .join("")
  );
}

function filled(piece, event, data) {
  return piece.replace(FIELD, (_, name) => field(name, event, data) || INSTEAD[name] || "?");
}

function field(name, event, data) {
  switch (name) {
    case "who":
      return event.agent_id || "The operator";
    case "someone":
      return event.agent_id || "Somebody";
    case "silence":
      return Number.isFinite(data.inactivity_duration_ms) ? duration(data.inactivity_duration_ms) : "";
    case "waited":
      return Number.isFinite(data.waited_ms) ? duration(data.waited_ms) : "";
    case "need":
      return NEEDS[data.needs] ?? "waits";
    case "why":
      return WHY[data.trigger] ?? "";
    case "ending":
      return ending(data);
    default:
      return text(name, data[name]);
  }
}

function ending(data) {
  if (data.closed_reason === "merged") return `merged into ${data.merged_into ?? "another mission"}`;
  if (data.closed_reason === "session") return line(data.reason || "closed with its session");
  return data.reason ? `called off: ${line(data.reason)}` : "called off";
}

function text(name, value) {
  if (Array.isArray(value)) return value.join(", ");
  if (value === null || value === undefined || typeof value === "object") return "";
  if (name === "purpose" && value === "edit") return "";
  if (name in COUNTED) {
    if (!Number.isInteger(value) || (name === "errors" && value === 0)) return "";
    return plural(value, COUNTED[name]);
  }
  const shown = line(value, 300);
  if (name === "title" && shown) return `"${shown}"`;
  return name === "status" ? shown.replaceAll("_", " ") : shown;
}

/** The tone of an event: "" or "green", "yellow", "red". */
export const tone = (type) => EVENT_TYPES[type]?.[1] ?? "";

/** Whether a story leaves the event out. */
export const minor = (type) => (EVENT_TYPES[type]?.[2] ?? "always") !== "always";

/** Whether anything but the log changes with an event. */
export const changes = (type) => (EVENT_TYPES[type]?.[3] ?? ["status"]).length > 0;
