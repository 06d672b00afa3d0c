/** Search: words, and filters by kind, mission, agent, path and time. */

import { call, seqAfter } from "./api.js";
import { h, replace } from "./dom.js";
import { ago, at as clock, iso, now, plural } from "./format.js";
import { at as replayed, changed, go } from "./route.js";
import { agentLink, code, empty, errorBox, heading, loading, missionLink } from "./ui.js";

const KINDS = ["prompt", "answer", "command", "file", "mail", "note", "event"];
const AGES = [["", "any time"], ["1", "last hour"], ["24", "last day"], ["168", "last week"], ["720", "last 30 days"]];
const PAGE = 30;

/** The view of a search; the form stays while its results change. It is not loaded by itself. */
export class Search {
  constructor(main) {
    this.reloads = false;
    this.form = h("form", { class: "search-form", role: "search", onsubmit: (event) => this.submit(event) });
    this.results = h("div", { class: "results" });
    replace(main, h("div", { class: "view search" }, heading("Search"), this.form, this.results));
    this.buildForm();
    this.titles = new Map();
  }

  buildForm() {
    const field = (name, label, control) =>
      h("label", { class: `field field-${name}` }, h("span", {}, label), control);
    const input = (name, attributes = {}) =>
      h("input", { name, id: `search-${name}`, autocomplete: "off", spellcheck: "false", ...attributes });
    const select = (name, options) =>
      h("select", { name, onchange: () => this.submit() },
        options.map(([value, label]) => h("option", { value }, label)));
    replace(this.form,
      field("q", "Words", input("q", { type: "search", maxlength: 1000, placeholder: "all of these words; begin* finds beginnings" })),
      field("kind", "Kind", select("kind", [["", "all kinds"], ...KINDS.map((kind) => [kind, kind])])),
      field("mission", "Mission", select("mission", [["", "all missions"]])),
      field("agent", "Agent", input("agent", { maxlength: 64 })),
      field("path", "Path contains", input("path", { maxlength: 1000 })),
      field("age", "Time", select("age", AGES)),
      h("button", { type: "submit" }, "Search"));
  }

  submit(event) {
    event?.preventDefault();
    const given = Object.fromEntries(new FormData(this.form));
    go(changed({ ...given, before: null }));
  }

  async load({ route, signal }) {
    const given = route.params;
    await this.fill(given, signal);
    const query = given.get("q") ?? "";
    const path = given.get("path") ?? "";
    const filters = ["kind", "mission", "agent", "age"].some((name) => given.get(name));
    if (!query && !path) {
      replace(this.results, empty(
        filters ? "Type a word, or a part of a path." :
          ["Search finds what was asked, said, run, changed, sent and noted. Type a word or a part of a path, such as ", code("login"), " or ", code("form.py"), "."]));
      return { title: "Search" };
    }
    replace(this.results, loading());
    const hits = h("ol", { class: "hits" });
    const foot = h("div", { class: "hits-foot" });
    const status = h("p", { class: "hint", role: "status" });
    const params = {
      query, path,
      kind: given.get("kind"),
      mission_id: given.get("mission"),
      agent_id: given.get("agent"),
      since_time: given.get("age") ? iso((replayed() ? Date.parse(replayed()) : now()) - Number(given.get("age")) * 3_600_000) : null,
      limit: PAGE,
    };
    if (replayed()) {
      // Hits before the first event after the moment.
      params.before = await seqAfter(replayed(), signal);
    }
    let shown = 0;
    const page = async () => {
      const found = await call("search.query", params, signal);
      shown += found.hits.length;
      hits.append(...found.hits.map((hit) => this.hit(hit)));
      params.before = found.hits.at(-1)?.seq;
      replace(status, plural(shown + found.more, "hit"), found.more >= 1000 ? " or more" : "", ", the newest first",
        found.indexing !== null && found.indexing !== undefined ? ` · ${found.indexing}% of the log is searchable so far` : "");
      replace(foot, found.more > 0 && h("button", {
        type: "button",
        onclick: () => page().catch((error) => error.name !== "AbortError" && replace(foot, errorBox(error))),
      }, "Older hits"));
    };
    await page();
    replace(this.results, status, shown ? hits : empty("Nothing was found. Take a word away, or choose all kinds and any time."), foot);
    return { title: query ? `Search: ${query}` : "Search", announce: status.textContent };
  }

  async fill(given, signal) {
    if (!this.titles.size) {
      const { missions } = await call("mission.list", { limit: 200 }, signal);
      this.titles = new Map(missions.map((mission) => [mission.id, mission.title]));
      const select = this.form.elements.mission;
      select.append(...missions.map((mission) => h("option", { value: mission.id }, mission.title)));
    }
    const chosen = given.get("mission");
    const select = this.form.elements.mission;
    if (chosen && ![...select.options].some((option) => option.value === chosen)) {
      select.append(h("option", { value: chosen }, chosen));
    }
    for (const name of ["q", "kind", "mission", "agent", "path", "age"]) {
      const control = this.form.elements[name];
      const value = given.get(name) ?? "";
      if (control.value !== value && document.activeElement !== control) control.value = value;
    }
  }

  hit(hit) {
    // What came back out of a checkpoint has no place in the log.
    const opens = hit.seq > 0;
    return h("li", { class: "hit" },
      h("div", { class: "hit-head" },
        h("span", { class: "kind" }, hit.kind),
        hit.agent_id && agentLink(hit.agent_id),
        hit.mission_id && missionLink(hit.mission_id, this.titles.get(hit.mission_id)),
        h("span", { class: "when" }, clock(hit.timestamp), " · ", ago(hit.timestamp))),
      opens
        ? h("a", { class: "excerpt", href: changed({ event: hit.seq }) }, marked(hit))
        : h("p", { class: "excerpt" }, marked(hit)));
  }
}

/** The excerpt with its matches marked; the daemon counts characters, not UTF-16. */
function marked({ excerpt, marks = [] }) {
  const characters = [...excerpt];
  const parts = [];
  let done = 0;
  for (const { start, end } of marks) {
    parts.push(characters.slice(done, start).join(""), h("mark", {}, characters.slice(start, end).join("")));
    done = end;
  }
  parts.push(characters.slice(done).join(""));
  return parts;
}

