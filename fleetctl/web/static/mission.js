/** A mission (or an agent) with what belongs to it, a part at a time; and the list of missions. */

import { ApiError, call, seqAfter } from "./api.js";
import { h, s } from "./dom.js";
import { minor, sentence, tone } from "./events.js";
import { ago, at as clock, compact, duration, line, moment, number, path, plural } from "./format.js";
import { changed, go, href } from "./route.js";
import {
  agentLink, badge, code, empty, errorBox, eventLink, fact, heading, missionLink, panel, progress, table, words,
} from "./ui.js";

const PARTS = [
  ["plan", "Plan"], ["work", "Work"], ["notes", "Notes"], ["mail", "Mail"], ["tokens", "Tokens"],
  ["checkpoints", "Checkpoints"], ["briefing", "Briefing"], ["events", "Events"],
];
const AGENT_PARTS = PARTS.filter(([name]) => name !== "checkpoints");
const EVENTS = 100;

/** All missions, the newest first. */
export async function loadMissions({ at, route, signal }) {
  if (at) {
    const fleet = await call("fleet.at", { time: at }, signal);
    return { at, missions: fleet.missions, total: fleet.missions.length };
  }
  const after = route.params.get("after");
  return { at, ...(await call("mission.list", { limit: 100, after }, signal)) };
}

export function drawMissions({ at, missions, total }) {
  const rows = missions.map((mission) => ({
    key: mission.id,
    cells: [
      [missionLink(mission.id, mission.title), h("span", { class: "sub" }, mission.id)],
      badge(mission.closed_reason === "session" ? "closed" : mission.status),
      progress(mission.progress_percent, `${mission.completed_sorties} of ${mission.total_sorties}`),
      mission.project_dir ? path(mission.project_dir) : "–",
      mission.last_activity_at ? ago(mission.last_activity_at) : "–",
    ],
  }));
  return {
    title: "Missions",
    content: h("div", { class: "view" },
      heading("Missions", [at ? `${plural(total, "mission")} open at this moment` : plural(total, "mission")]),
      rows.length
        ? table("Missions", [["Mission", "grow"], ["State"], ["Sorties"], ["Directory"], ["Last activity"]], rows)
        : empty("There is no mission. A session of an agent starts one, or run ", code('fleetctl mission create "…"'), "."),
      missions.length < total && missions.length
        ? h("p", {}, h("a", { href: changed({ after: missions.at(-1).id }) }, "Older missions")) : null),
  };
}

/** A mission with the part that the route asks for. */
export async function loadMission(context) {
  const { at, route, signal } = context;
  const id = { mission_id: route.id };
  const part = partOf(route, PARTS);
  const [mission, then] = await Promise.all([
    call("mission.get", id, signal),
    at ? call("mission.at", { ...id, time: at }, signal) : null,
  ]);
  if (then) {
    Object.assign(mission, then.mission, {
      total_sorties: then.total_sorties,
      completed_sorties: then.completed_sorties,
      progress_percent: then.progress_percent,
      completed_at: null,
      last_activity_at: null,
    });
  }
  const content = await PART[part]({ ...context, id, mission, then, inside: mission.project_dir });
  return { mission, part, content, at };
}

export function drawMission({ mission, part, content, at }) {
  const facts = [
    badge(mission.closed_reason === "session" ? "closed" : mission.status),
    progress(mission.progress_percent, `${mission.completed_sorties} of ${mission.total_sorties} sorties`),
    fact("priority", mission.priority ?? "medium"),
    mission.project_dir && fact("in", path(mission.project_dir)),
    fact("created", ago(mission.created_at, at && Date.parse(at))),
    mission.completed_at && fact("ended", ago(mission.completed_at)),
    h("a", { href: href("timeline", null, { mission: mission.id }) }, "Timeline"),
  ].filter(Boolean);
  return {
    title: mission.title,
    content: h("div", { class: "view" },
      heading(mission.title, facts, mission.description && h("p", { class: "description" }, mission.description)),
      parts("mission", mission.id, part, PARTS),
      h("div", { "data-key": `part ${part}` }, content)),
  };
}

/** An agent with the part that the route asks for. */
export async function loadAgent(context) {
  const { at, route, signal } = context;
  const id = { agent_id: route.id };
  const part = partOf(route, AGENT_PARTS);
  let state;
  if (at) {
    const fleet = await call("fleet.at", { time: at }, signal);
    state = fleet.agents.find((agent) => agent.agent_id === route.id) ?? null;
  } else {
    [state = null] = (await call("attention.list", id, signal)).agents;
  }
  const content = await PART[part]({ ...context, id, agent: state, inside: state?.cwd ?? null });
  return { id: route.id, state, part, content, at };
}

export function drawAgent({ id, state, part, content, at }) {
  const to = at ? Date.parse(at) : null;
  const facts = state
    ? [
      badge(state.needs === "none" ? state.status : state.needs),
      fact("since", ago(state.since, to)),
      state.harness && fact("CLI", state.harness),
      state.mission_id && fact("mission", missionLink(state.mission_id, state.mission)),
      state.cwd && fact("in", path(state.cwd)),
      state.branch && fact("branch", code(state.branch)),
      state.window_tokens && fact("window", `${compact(state.window_tokens)}${state.window_size ? ` of ${compact(state.window_size)}` : ""}`),
      h("a", { href: href("timeline", null, { agent: id }) }, "Timeline"),
    ].filter(Boolean)
    : [at ? "not known at this moment" : "no longer in the fleet"];
  return {
    title: id,
    content: h("div", { class: "view" },
      heading(id, facts, state?.text && h("p", { class: "description" }, state.text)),
      parts("agent", id, part, AGENT_PARTS),
      h("div", { "data-key": `part ${part}` }, content)),
  };
}

function partOf(route, all) {
  const part = route.params.get("part");
  return all.some(([name]) => name === part) ? part : "plan";
}

function parts(view, id, present, all) {
  return h("nav", { class: "parts", "aria-label": "Parts" },
    h("ul", {}, all.map(([name, label]) =>
      h("li", {}, h("a", {
        href: href(view, id, { part: name === "plan" ? null : name }),
        "aria-current": name === present && "page",
      }, label)))));
}

const PART = { plan, work, notes, mail, tokens, checkpoints, briefing, events };

async function report({ id, at, signal }) {
  return call("report.get", { ...id, until: at }, signal);
}

// -- the plan ----------------------------------------------------------------------------------

async function plan(context) {
  if (context.agent !== undefined) return agentPlan(context);
  const { then, id, signal } = context;
  const sorties = then ? then.sorties : (await call("sortie.list", id, signal)).sorties;
  if (!sorties.length) {
    return empty("The mission has no sorties. The plan of an agent becomes sorties, or run ", code('fleetctl sortie add "…"'), ".");
  }
  const places = new Map(sorties.map((sortie, n) => [sortie.id, n]));
  const done = new Set(sorties.filter((sortie) => sortie.status === "completed").map((sortie) => sortie.id));
  const rows = sorties.map((sortie, n) => ({
    key: sortie.id,
    class: `sortie ${sortie.status}`,
    cells: [
      [h("span", { class: "numbers ordinal" }, `${n + 1}`), h("span", { class: "title" }, sortie.title ?? sortie.id),
        sortie.description && h("span", { class: "sub" }, line(sortie.description, 300)),
        sortie.blocked_reason && h("span", { class: "sub warn" }, `Blocked: ${line(sortie.blocked_reason, 300)}`),
        sortie.result && h("span", { class: "sub" }, line(sortie.result, 300))],
      badge(sortie.status),
      agentLink(sortie.assigned_to),
      [progress(sortie.progress ?? 0), sortie.progress_notes && h("span", { class: "sub" }, line(sortie.progress_notes, 200))],
      after(sortie, places, done, sorties),
      (sortie.files ?? []).length ? sortie.files.slice(0, 4).map((file) => h("span", { class: "sub" }, path(file))) : "–",
      sortie.completed_at ? ago(sortie.completed_at, context.at && Date.parse(context.at))
        : sortie.started_at ? ago(sortie.started_at, context.at && Date.parse(context.at)) : "–",
    ],
  }));
  return [
    sorties.some((sortie) => sortie.depends_on?.length) && sorties.length <= 60 && graph(sorties, places),
    table("Sorties of the plan",
      [["Sortie", "grow"], ["State"], ["Agent"], ["Progress"], ["Comes after"], ["Files"], ["Began or ended"]], rows),
  ];
}

function after(sortie, places, done) {
  if (!sortie.depends_on?.length) return "–";
  return h("ul", { class: "after" }, sortie.depends_on.map((id) => {
    const place = places.get(id);
    return h("li", { class: done.has(id) ? "met" : "open" },
      place === undefined ? id : `${place + 1}`,
      h("span", { class: "sub inline" }, done.has(id) ? " done" : " waits"));
  }));
}

/** The order of the plan as boxes in columns: a sortie stands right of all that it comes after. */
function graph(sorties, places) {
  const column = new Map();
  const columnOf = (n, path_ = new Set()) => {
    if (column.has(n)) return column.get(n);
    if (path_.has(n)) return 0;
    path_.add(n);
    const before = (sorties[n].depends_on ?? []).map((id) => places.get(id)).filter((place) => place !== undefined);
    const found = before.length ? 1 + Math.max(...before.map((place) => columnOf(place, path_))) : 0;
    column.set(n, found);
    return found;
  };
  const rows = [];
  const spots = sorties.map((_, n) => {
    const x = columnOf(n);
    rows[x] = (rows[x] ?? 0) + 1;
    return { x, y: rows[x] - 1 };
  });
  const [w, hgt, gapX, gapY] = [170, 30, 36, 10];
  const spot = (n) => [spots[n].x * (w + gapX) + 2, spots[n].y * (hgt + gapY) + 2];
  const wires = sorties.flatMap((sortie, n) => (sortie.depends_on ?? [])
    .filter((id) => places.has(id))
    .map((id) => {
      const [x, y] = spot(n);
      const [fromX, fromY] = spot(places.get(id));
      const [x1, y1, y2] = [fromX + w, fromY + hgt / 2, y + hgt / 2];
      return s("path", { class: "wire", d: `M${x1} ${y1}C${x1 + gapX / 2} ${y1} ${x - gapX / 2} ${y2} ${x} ${y2}` });
    }));
  const width = rows.length * (w + gapX) - gapX + 4;
  const height = Math.max(...rows) * (hgt + gapY) - gapY + 4;
  const boxes = sorties.map((sortie, n) => {
    const [x, y] = spot(n);
    const label = `${n + 1}. ${sortie.title ?? sortie.id}`;
    return s("g", { class: `box ${sortie.status}` },
      s("title", {}, `${label}: ${words(sortie.status)}`),
      s("rect", { x, y, width: w, height: hgt, rx: 4 }),
      s("text", { x: x + 9, y: y + 19 }, line(label, 24)));
  });
  return h("figure", { class: "graph" },
    h("figcaption", { class: "hint" }, "What comes after what; the table below tells the same."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Order of the plan" },
      s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Order of the plan; the table below tells the same" }, wires, boxes)));
}

async function agentPlan(context) {
  const found = await report(context);
  const rows = found.planned.map((sortie) => ({
    key: sortie.id,
    class: `sortie ${sortie.status}`,
    cells: [
      [h("span", { class: "title" }, sortie.title), sortie.blocked_reason && h("span", { class: "sub warn" }, `Blocked: ${line(sortie.blocked_reason, 300)}`),
        sortie.result && h("span", { class: "sub" }, line(sortie.result, 300))],
      badge(sortie.status),
      progress(sortie.progress),
      missionLink(sortie.mission_id, found.missions.find((mission) => mission.id === sortie.mission_id)?.title),
      ago(sortie.updated_at, context.at && Date.parse(context.at)),
    ],
  }));
  const asked = found.asked.map((prompt) => h("li", {}, h("span", { class: "when" }, clock(prompt.at)), h("p", { class: "said" }, prompt.text)));
  return [
    rows.length ? table("Sorties of the agent", [["Sortie", "grow"], ["State"], ["Progress"], ["Mission"], ["Changed"]], rows) : empty("The agent has no sorties."),
    asked.length > 0 && panel("Asked", h("ol", { class: "story" }, asked), { id: "asked", count: asked.length }),
  ];
}

// -- files, commands, commits, errors ----------------------------------------------------------

async function work(context) {
  const { inside } = context;
  const to = context.at ? Date.parse(context.at) : null;
  const found = await report(context);
  const agentList = (ids) => ids.map((id, n) => [n > 0 && ", ", agentLink(id)]);
  const files = found.files.map((file) => ({
    key: file.file,
    cells: [path(file.file, inside), number(file.changes), agentList(file.agents), ago(file.last_at, to)],
  }));
  const commands = found.commands.map((command) => ({
    key: command.command,
    cells: [
      [code(line(command.command, 300)), command.test && h("span", { class: "tag" }, "test"),
        command.error && h("span", { class: "sub warn" }, line(command.error, 300))],
      command.result ? badge(command.result, command.result === "PASS" ? "passed" : "failed") : badge("idle", "not known"),
      h("span", { class: "numbers" }, `${number(command.runs)}${command.failed ? `, ${number(command.failed)} failed` : ""}`),
      agentList(command.agents), ago(command.last_at, to),
    ],
  }));
  const commits = found.commits.map((commit) => h("li", {}, h("span", { class: "when" }, clock(commit.at)), " ",
    agentLink(commit.agent_id), " ", code(line(commit.command, 300)), " ", commit.result && badge(commit.result, commit.result === "PASS" ? "passed" : "failed")));
  const errors = found.errors.map((error) => h("li", {}, h("span", { class: "when" }, clock(error.at)), " ",
    agentLink(error.agent_id), " ", h("strong", {}, error.name), " ", line(error.message, 300)));
  const omitted = found.omitted ?? {};
  const left = (count) => count > 0 ? `${plural(count, "older one")} left out` : null;
  return h("div", { class: "stack" },
    h("p", { class: "hint" }, `At work for ${duration(found.active_ms)} in ${duration(found.elapsed_ms)}, by ${plural(found.agents.length, "agent")}.`),
    panel("Files", files.length ? table("Changed files", [["File", "grow"], ["Changes", "right"], ["Agents"], ["Last"]], files, { compact: true }) : empty("No file was changed."),
      { id: "files", count: files.length, note: left(omitted.files) }),
    panel("Commands", commands.length ? table("Commands", [["Command", "grow"], ["Last result"], ["Runs"], ["Agents"], ["Last"]], commands, { compact: true }) : empty("No command was run."),
      { id: "commands", count: commands.length, note: left(omitted.commands) }),
    commits.length > 0 && panel("Commits", h("ol", { class: "story" }, commits), { id: "commits", count: commits.length }),
    errors.length > 0 && panel("Errors", h("ol", { class: "story" }, errors), { id: "errors", count: errors.length }));
}

// -- notes, mail, tokens -----------------------------------------------------------------------

async function notes(context) {
  const { then } = context;
  const found = then ? then.mission.notes ?? [] : context.at
    ? (await report(context)).decided
    : (await call("note.list", { ...context.id, withdrawn: true, newest: true }, context.signal)).notes;
  if (!found.length) {
    return empty("There are no notes. Agents note decisions, and you can with ", code('fleetctl note decision "…"'), ".");
  }
  const to = context.at ? Date.parse(context.at) : null;
  const order = [...found].sort((one, other) => Number(Boolean(other.pinned_at)) - Number(Boolean(one.pinned_at)) || Number(Boolean(one.withdrawn_at)) - Number(Boolean(other.withdrawn_at)));
  return h("ul", { class: "notes" }, order.map((note) =>
    h("li", { class: `note ${note.withdrawn_at ? "withdrawn" : ""}`, "data-key": note.id },
      h("div", { class: "note-head" },
        h("span", { class: "kind" }, words(note.kind)),
        note.pinned_at && h("span", { class: "tag" }, "pinned"),
        note.withdrawn_at && h("span", { class: "tag" }, "withdrawn"),
        note.agent_id ? agentLink(note.agent_id) : words(note.origin),
        note.path && path(note.path, context.inside),
        h("span", { class: "when" }, ago(note.created_at, to))),
      h("p", {}, note.text),
      note.because && h("p", { class: "sub" }, "Because: ", note.because),
      note.withdrawn_reason && h("p", { class: "sub" }, `Withdrawn${note.withdrawn_by ? ` by ${note.withdrawn_by}` : ""}: `, note.withdrawn_reason))));
}

async function mail(context) {
  const to = context.at ? Date.parse(context.at) : null;
  const { messages } = await call("message.list", { ...context.id, newest: true, limit: 200, until_time: context.at }, context.signal);
  if (!messages.length) return empty("No message was sent.");
  return h("ul", { class: "notes" }, messages.map((message) =>
    h("li", { class: "note", "data-key": message.id },
      h("div", { class: "note-head" },
        agentLink(message.from), " to ", message.to.map((each, n) => [n > 0 && ", ", agentLink(each)]),
        message.priority !== "medium" && h("span", { class: "tag" }, message.priority),
        to === null && message.deliveries.some((each) => each.status === "queued") && badge("waiting", "not read"),
        h("span", { class: "when" }, ago(message.sent_at, to))),
      h("p", {}, h("strong", {}, message.subject)),
      message.body && h("p", { class: "said" }, message.body))));
}

async function tokens(context) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const by = ["agent", "sortie", "model", "day"].find((each) => each === context.route.params.get("by")) ?? "agent";
  const usage = await call("usage.report", { ...context.id, by, time_zone: zone, until_time: context.at }, context.signal);
  const sum = (models, name) => models.reduce((total, model) => total + model[name], 0);
  const groups = usage.groups.map((group) => ({
    ...group,
    input: sum(group.models, "input_tokens"),
    cached: sum(group.models, "cache_read_tokens"),
    written: sum(group.models, "cache_write_tokens"),
    output: sum(group.models, "output_tokens"),
    requests: sum(group.models, "requests"),
  }));
  const all = (group) => group.input + group.cached + group.written + group.output;
  const most = Math.max(1, ...groups.map(all));
  const name = (group) => {
    if (group.name === null) return "not told";
    return by === "agent" ? agentLink(group.name) : group.title ?? group.name;
  };
  const rows = groups.map((group) => ({
    key: String(group.name),
    cells: [name(group), stacked(group, most), number(group.requests), compact(group.input), compact(group.cached), compact(group.written), compact(group.output), compact(all(group))],
  }));
  return h("div", { class: "stack" },
    h("div", { class: "choices", role: "group", "aria-label": "Tokens by" }, "By ", ["agent", "sortie", "model", "day"].map((each) =>
      h("button", { type: "button", "aria-pressed": String(each === by), onclick: () => go(changed({ by: each })) }, each))),
    usage.budget && (usage.budget.tokens || usage.budget.usd_cents) && h("p", {}, "Budget: ",
      usage.budget.tokens ? `${compact(usage.budget.tokens)} tokens` : `$${(usage.budget.usd_cents / 100).toFixed(2)}`),
    rows.length
      ? table("Tokens", [[by], ["Share", "share"], ["Requests", "right"], ["Input", "right"], ["From cache", "right"], ["To cache", "right"], ["Output", "right"], ["All", "right"]], rows, { compact: true })
      : empty("No tokens are known. They are read from the transcripts of agent CLIs."),
    usage.not_known.length > 0 && h("p", { class: "hint" }, "Not known of: ", usage.not_known.slice(0, 20).map((each, n) => [n > 0 && ", ", agentLink(each.agent_id)])));
}

/** Input, cache and output as parts of one bar. */
function stacked(group, most) {
  const width = 120;
  let x = 0;
  const parts = ["input", "cached", "written", "output"].map((part) => {
    const wide = (group[part] / most) * width;
    const rect = s("rect", { class: `tokens-${part}`, x: x.toFixed(1), y: 0, width: Math.max(0, wide).toFixed(1), height: 10 });
    x += wide;
    return rect;
  });
  return s("svg", { class: "stacked", width, height: 10, "aria-hidden": "true", focusable: "false" }, parts);
}

// -- checkpoints and their differences ---------------------------------------------------------

async function checkpoints(context) {
  const { id, at, route, signal, mission } = context;
  const found = (await call("checkpoint.list", { ...id, limit: 200, until_time: at }, signal)).checkpoints;
  if (!found.length) {
    return empty("There is no checkpoint", at ? " at this moment." : ["; fleetd takes one at milestones and before compactions, and you can with ", code("fleetctl checkpoint"), "."]);
  }
  const before = route.params.get("before");
  const after_ = route.params.get("after");
  const choose = (name, present, first, label) => h("label", { class: "field" }, h("span", {}, label),
    h("select", { onchange: (event) => go(changed({ [name]: event.target.value })) },
      first, found.map((each) => h("option", { value: each.id, selected: each.id === present && "" }, option(each)))));
  const difference = before || found.length ? await compare(context, before ?? found[0].id, after_) : null;
  const rows = found.map((each) => ({
    key: each.id,
    class: each.id === (before ?? found[0].id) ? "chosen" : "",
    cells: [
      [h("a", { href: changed({ before: each.id, after: null }) }, clock(each.timestamp)), h("span", { class: "sub" }, each.id)],
      [badge(each.undo ? "waiting" : "idle", each.undo ? "before a recovery" : each.trigger), each.trigger_details && h("span", { class: "sub" }, line(each.trigger_details, 200))],
      progress(each.progress_percent), number(each.sortie_count), number(each.lock_count), number(each.message_count),
      h("a", { href: changed({ part: "briefing", checkpoint: each.id, before: null, after: null }) }, "Briefing"),
    ],
  }));
  return h("div", { class: "stack" },
    table("Checkpoints", [["Taken"], ["Why", "grow"], ["Progress"], ["Sorties", "right"], ["Locks", "right"], ["Mail", "right"], ["Text"]], rows, { compact: true }),
    panel("Difference", [
      h("div", { class: "choices" },
        choose("before", before ?? found[0].id, null, "From"),
        choose("after", after_, h("option", { value: "", selected: !after_ && "" }, at ? "the moment of the replay" : "now"), "to")),
      difference], { id: "difference", note: mission && `of ${line(mission.title, 80)}` }));
}

const option = (each) => `${moment(Date.parse(each.timestamp))} · ${each.trigger} · ${each.progress_percent}%`;

async function compare({ id, at, signal }, before, after_) {
  try {
    const given = { before, after: after_ };
    if (!after_ && at) Object.assign(given, { after_time: at, mission_id: id.mission_id });
    return drawDifference(await call("checkpoint.compare", given, signal));
  } catch (error) {
    if (error instanceof ApiError && error.status !== 401) return errorBox(error);
    throw error;
  }
}

function drawDifference(found) {
  if (found.equal) return empty("Nothing is different.");
  const value = (each) => Array.isArray(each) ? (each.length ? each.map((item) => h("span", { class: "sub" }, line(item, 200))) : "none")
    : each === null || each === "" ? "none" : line(each, 300);
  const change = ({ field, before, after: then }) => h("li", { class: "change" },
    h("span", { class: "label" }, words(field)), h("del", {}, value(before)), h("ins", {}, value(then)));
  const group = (title, items) => items.length > 0 && [h("h3", {}, title), h("ul", { class: "diff" }, items)];
  const mark = (sign, text, tone_) => h("li", { class: `change ${tone_}` }, h("span", { class: "sign" }, sign), " ", text);
  return h("div", { class: "difference" },
    h("p", { class: "hint" }, clock(found.before.timestamp), " to ", clock(found.after.timestamp),
      `: ${found.before.progress_percent}% to ${found.after.progress_percent}%`),
    group("Mission", found.mission.map(change)),
    group("Sorties", [
      ...found.sorties.added.map((each) => mark("added", each.title ?? each.id, "added")),
      ...found.sorties.removed.map((each) => mark("removed", each.title ?? each.id, "removed")),
      ...found.sorties.changed.map((each) => h("li", { class: "change" }, h("strong", {}, each.title), h("ul", {}, each.changes.map(change)))),
    ]),
    group("Locks", [
      ...found.locks.gained.map((each) => mark("locked", [path(each.file), ` by ${each.held_by}`], "added")),
      ...found.locks.released.map((each) => mark("released", [path(each.file), ` by ${each.held_by}`], "removed")),
      ...found.locks.changed.map((each) => mark("moved", [path(each.file), ` from ${each.before} to ${each.after}`], "")),
    ]),
    group("Mail", [
      ...found.messages.new.map((each) => mark("waits", each.subject, "added")),
      ...found.messages.gone.map((each) => mark("read", each.subject, "removed")),
      ...found.messages.changed.map((each) => mark("waits for others", each.subject, "")),
    ]),
    group("Briefing", found.recovery_context.map(change)));
}

// -- the briefing and the events ---------------------------------------------------------------

async function briefing(context) {
  const { id, at, route, signal } = context;
  let checkpoint = route.params.get("checkpoint");
  let origin = "As an agent would read it now.";
  if (checkpoint) origin = "As an agent would read it from this checkpoint.";
  else if (at) {
    const mission = id.mission_id ?? context.agent?.mission_id;
    if (!mission) return empty("The agent was in no mission at this moment, so its briefing is not known.");
    const [found] = (await call("checkpoint.list", { mission_id: mission, limit: 1, until_time: at }, signal)).checkpoints;
    if (!found) return empty("There was no checkpoint at this moment, so its briefing is not known.");
    checkpoint = found.id;
    origin = ["From the last checkpoint before this moment, taken at ", clock(found.timestamp), "."];
  }
  const agent = route.params.get("agent");
  const found = await call("recovery.context", { ...id, checkpoint_id: checkpoint, agent_id: id.agent_id ?? agent }, signal);
  return h("div", { class: "stack" },
    h("p", { class: "hint" }, origin, ` ${plural([...found.prompt].length, "character")}.`),
    (found.warnings ?? []).map((warning) => h("p", { class: "notice" }, warning)),
    h("pre", { class: "briefing", tabindex: 0, "aria-label": "Briefing" }, found.prompt));
}

async function events(context) {
  const { id, at, route, signal } = context;
  const given = { ...id, newest: true, limit: EVENTS };
  const before = route.params.get("before");
  if (before) given.before = Number(before);
  else if (at) given.before = await seqAfter(at, signal);
  const found = await call("event.list", given, signal);
  if (!found.events.length) return empty("No event is in the log.");
  return h("div", { class: "stack" }, story(found.events, at),
    found.events.length >= EVENTS && h("p", {}, h("a", { href: changed({ before: found.position }) }, "Older events")));
}

/** Events as a list of sentences that open them. */
export function story(list, at = null) {
  return h("ol", { class: "story" }, list.map((event) =>
    h("li", { class: `${tone(event.type)} ${minor(event.type) ? "minor" : ""}`, "data-key": event.seq },
      h("span", { class: "when" }, clock(event.timestamp)), " ",
      eventLink(event.seq, line(sentence(event), 300)), " ",
      h("span", { class: "sub inline" }, ago(event.timestamp, at && Date.parse(at))))));
}
