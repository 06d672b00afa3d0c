/** Now: agents that need a person, what everybody does, conflicts, locks, missions. */

import { call } from "./api.js";
import { h } from "./dom.js";
import { ago, at as clock, compact, line, now, path, plural, since } from "./format.js";
import { href } from "./route.js";
import { agentLink, badge, code, empty, heading, missionLink, panel, progress, table } from "./ui.js";

const URGENT = new Set(["permission", "question", "plan_approval", "failed", "limit", "lost"]);
const ADVICE = {
  permission: "Allow or refuse it in the agent's terminal.",
  question: "Answer it in the agent's terminal.",
  plan_approval: "Read its plan and approve it, or say what to change.",
  failed: "Its turn broke off. Give it a new prompt.",
  limit: "It goes on after the limit ends.",
  lost: "Its process ended. Resume its work with a new agent.",
};
const DAY = 86_400_000;
const SHOWN = 200;

/** What Now shows, live or at a moment. */
export async function load({ at, signal }) {
  if (at) {
    const [fleet, { machines }] = await Promise.all([
      call("fleet.at", { time: at }, signal), call("system.status", {}, signal),
    ]);
    return {
      at: Date.parse(fleet.timestamp),
      agents: fleet.agents,
      locks: fleet.locks,
      conflicts: fleet.conflicts,
      missions: fleet.missions,
      openMissions: fleet.missions.length,
      moreConflicts: 0,
      candidates: [],
      machines: machines ?? [],
      outside: [],
      more: 0,
    };
  }
  const open = (status) => call("mission.list", { status, limit: 100 }, signal);
  const [attention, conflicts, locks, begun, pending, status] = await Promise.all([
    call("attention.list", { limit: 1000 }, signal),
    call("attention.conflicts", {}, signal),
    call("lock.list", {}, signal),
    open("in_progress"),
    open("pending"),
    call("system.status", {}, signal),
  ]);
  return {
    at: null,
    agents: attention.agents,
    more: attention.more,
    conflicts: conflicts.conflicts,
    moreConflicts: conflicts.more,
    openMissions: begun.total + pending.total,
    outside: conflicts.outside ?? [],
    locks: locks.locks,
    // The newest first, as in one list.
    missions: [...begun.missions, ...pending.missions].sort((one, other) =>
      Date.parse(other.created_at) - Date.parse(one.created_at)),
    candidates: status.candidates,
    machines: status.machines ?? [],
  };
}

/** Whether an agent needs a person now. */
function urgent(agent, present) {
  if (!URGENT.has(agent.needs)) return false;
  return agent.needs !== "lost" || present - Date.parse(agent.since) < DAY;
}

/** Draw it. */
export function draw(data) {
  const present = data.at ?? now();
  const waiting = data.agents.filter((agent) => urgent(agent, present));
  const others = data.agents.filter((agent) => !urgent(agent, present));
  const busy = others.filter((agent) => agent.status === "active" || agent.needs === "background");
  const names = new Map(data.machines.map((machine) => [machine.machine_id, machine.name]));
  return {
    title: waiting.length ? `(${waiting.length}) Now` : "Now",
    content: h("div", { class: "view now" },
      heading("Now", [
        plural(waiting.length, "agent needs", "agents need") + " a person",
        `${busy.length} at work`,
        plural(data.openMissions, "open mission"),
        plural(data.locks.length, "lock"),
      ]),
      h("div", { class: "columns" },
        h("div", { class: "wide" },
          needs(waiting, data, names),
          agents(others, data, names)),
        h("div", { class: "side" },
          missions(data),
          conflicts(data),
          locks(data)))),
    announce: waiting.length
      ? `${plural(waiting.length, "agent needs", "agents need")} a person: ${waiting.slice(0, 3).map((agent) => agent.agent_id).join(", ")}`
      : "No agent needs a person",
  };
}

function needs(waiting, data, names) {
  const rows = waiting.map((agent) =>
    h("li", { class: `need need-${agent.needs}`, "data-key": agent.agent_id },
      h("div", { class: "need-head" },
        h("span", { class: "need-who" }, agentLink(agent.agent_id), badge(agent.needs)),
        h("span", { class: "need-since" }, since(agent.since, data.at))),
      agent.text && h("p", { class: "need-text" }, agent.text),
      h("p", { class: "need-where" },
        agent.mission_id && h("span", { class: "part" }, missionLink(agent.mission_id, agent.mission)),
        place(agent, names)),
      h("p", { class: "hint" }, agent.needs === "limit" && agent.reset_at
        ? ["It goes on at ", clock(agent.reset_at), "."]
        : ADVICE[agent.needs])));
  return panel("Needs a person",
    rows.length ? h("ul", { class: "needs" }, rows) : empty("No agent waits for a person."),
    { id: "needs", count: rows.length });
}

function place(agent, names) {
  const parts = [];
  if (agent.harness) parts.push(agent.harness);
  if (agent.branch) parts.push(["branch ", code(agent.branch)]);
  else if (agent.cwd) parts.push(path(agent.cwd));
  if (agent.machine) parts.push(names.get(agent.machine) ?? agent.machine);
  return parts.map((part) => h("span", { class: "part" }, part));
}

function agents(others, data, names) {
  if (!others.length) {
    return panel("Agents", data.agents.length ? empty("All agents wait for a person.") : empty(
      data.at ? "No agent was known at this moment." : ["No agent is known. Run ", code("fleetctl hooks install"),
        " and start an agent, or try ", code("fleetctl demo"), "."]),
    { id: "agents", count: 0 });
  }
  const rows = others.slice(0, SHOWN).map((agent) => ({
    key: agent.agent_id,
    class: agent.status === "active" ? "busy" : "",
    cells: [
      [agentLink(agent.agent_id), agent.harness && h("span", { class: "sub" }, agent.harness)],
      [badge(agent.needs === "none" ? agent.status : agent.needs),
        h("span", { class: "sub" }, since(agent.since, data.at))],
      agent.mission_id
        ? [missionLink(agent.mission_id, agent.mission),
          agent.step && h("span", { class: "sub" }, `${agent.step.number} of ${agent.step.total}: ${line(agent.step.title, 120)}`)]
        : "–",
      doing(agent, data),
      [h("span", { class: "numbers" }, agent.files_changed ? plural(agent.files_changed, "file") : ""),
        windowFill(agent)],
      whereabouts(agent, names),
    ],
  }));
  const hidden = others.length - rows.length + (data.more ?? 0);
  return panel("Agents",
    [table("What agents do", [["Agent"], ["State", "narrow"], ["Mission and step"], ["Doing", "grow"], ["Changed", "narrow"], ["Where"]], rows),
      hidden > 0 && h("p", { class: "hint" }, `${plural(hidden, "more agent")} behind these.`)],
    { id: "agents", count: others.length });
}

const VERBS = { answer: "said", command: "runs", edit: "edits", prompt: "was asked", tool: "uses" };
const PAST = { answer: "said", command: "ran", edit: "edited", prompt: "was asked", tool: "used" };

function doing(agent, data) {
  const parts = [];
  if (agent.doing) {
    const { what, text, since: began, ended } = agent.doing;
    const verb = (ended ? PAST : VERBS)[what] ?? what;
    const inside = what === "edit" && agent.cwd && text.startsWith(`${agent.cwd}/`) ? text.slice(agent.cwd.length + 1) : text;
    const shown = what === "command" || what === "edit" ? code(line(inside, 160)) : line(text, 160);
    parts.push(h("span", { class: "doing" }, `${verb} `, shown, " ", h("span", { class: "sub inline" }, ago(began, data.at))));
  }
  for (const each of (agent.running ?? []).filter((work) => !work.ended_at).slice(0, 3)) {
    parts.push(h("span", { class: "sub" }, `${each.kind}: ${line(each.told ?? each.id, 100)}`));
  }
  return parts.length ? parts : "–";
}

function windowFill(agent) {
  if (!agent.window_tokens) return null;
  const share = agent.window_size ? ` of ${compact(agent.window_size)}` : "";
  return h("span", { class: "sub", title: "context window in use" }, `${compact(agent.window_tokens)}${share}`);
}

function whereabouts(agent, names) {
  const parts = [];
  if (agent.branch) parts.push(code(agent.branch));
  if (agent.machine) parts.push(h("span", { class: "sub" }, names.get(agent.machine) ?? agent.machine));
  if (!parts.length && agent.cwd) parts.push(h("code", { title: agent.cwd }, agent.cwd.split("/").at(-1) || "/"));
  return parts.length ? parts : "–";
}

function missions(data) {
  const waiting = new Map(data.candidates.map((each) => [each.mission_id, each]));
  const rows = data.missions.slice(0, 50).map((mission) => {
    const recover = waiting.get(mission.id);
    return h("li", { class: "mission-line", "data-key": mission.id },
      h("div", { class: "mission-name" }, missionLink(mission.id, mission.title),
        recover && badge("waiting", recover.reason === "agent_lost" ? "agent lost" : "silent")),
      progress(mission.progress_percent, `${mission.completed_sorties} of ${mission.total_sorties}`));
  });
  return panel("Missions",
    rows.length ? h("ul", { class: "lines" }, rows)
      : empty("No mission is open. ", data.at ? "" : ["A session of an agent starts one, or run ", code('fleetctl mission create "…"'), "."]),
    { id: "missions", count: data.openMissions,
      note: h("a", { href: href("mission") }, "All missions") });
}

function conflicts(data) {
  const rows = data.conflicts.map((conflict) =>
    h("li", { class: "conflict", "data-key": conflict.file },
      path(conflict.file),
      conflict.at_merge && badge("blocked", "meets at the merge"),
      h("span", { class: "sub" }, conflict.edits.map((edit, n) =>
        [n > 0 && ", ", agentLink(edit.agent_id), " ", ago(edit.at, data.at)]))));
  const outside = data.outside.map((edit) =>
    h("li", { class: "conflict", "data-key": `outside ${edit.path} ${edit.agent_id}` },
      path(edit.path), badge("blocked", "outside of its work tree"),
      h("span", { class: "sub" }, agentLink(edit.agent_id), " ", ago(edit.at, data.at))));
  return panel("Conflicts",
    rows.length + outside.length
      ? h("ul", { class: "lines" }, rows, outside)
      : empty("No file was changed by two agents within the hour."),
    { id: "conflicts", count: rows.length + data.moreConflicts + outside.length });
}

function locks(data) {
  const rows = data.locks.slice(0, 100).map((lock) =>
    h("li", { class: "lock", "data-key": lock.id },
      path(lock.file),
      lock.mode === "shared" && badge("idle", "shared"),
      h("span", { class: "sub" }, agentLink(lock.held_by), " ",
        lock.purpose && lock.purpose !== "edit" ? `(${line(lock.purpose, 80)}) ` : "",
        "for ", since(lock.acquired_at, data.at))));
  return panel("Locks", rows.length ? h("ul", { class: "lines" }, rows) : empty("No file is locked."),
    { id: "locks", count: data.locks.length });
}
