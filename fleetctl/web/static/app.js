/** The page: routes, the key, what is live, the keyboard. */

import { ApiError, exchange, follow, key } from "./api.js";
import { showEvent, showHelp } from "./dialog.js";
import { h, morph, replace } from "./dom.js";
import { changes } from "./events.js";
import { duration, setNow, tick } from "./format.js";
import * as mission from "./mission.js";
import * as nowView from "./now.js";
import { Replay } from "./replay.js";
import { at, changed, current, go, href } from "./route.js";
import { Search } from "./search.js";
import { Timeline } from "./timeline.js";
import { code, errorBox, loading } from "./ui.js";

const element = (id) => document.getElementById(id);
const main = element("main");
const VIEWS = [["now", "Now"], ["timeline", "Timeline"], ["mission", "Missions"], ["search", "Search"]];
// At most twice a second.
const PAUSE = 500;
const LONGEST_PAUSE = 10_000;
const REST = 60_000;
const PATIENCE = 5_000;

// -- views -------------------------------------------------------------------------------------

/** A view that is drawn again as a whole; what is the same stays in the document. */
class Drawn {
  constructor(load, draw) {
    this.loadData = load;
    this.drawData = draw;
    replace(main, loading());
  }

  async load(context) {
    const drawn = this.drawData(await this.loadData(context));
    if (context.signal.aborted) return null;
    if (main.firstElementChild?.classList.contains("view")) morph(main.firstElementChild, drawn.content);
    else replace(main, drawn.content);
    return drawn;
  }
}

function make({ view, id }) {
  switch (view) {
    case "timeline": return new Timeline(main, announce, load);
    case "search": return new Search(main);
    case "agent": return new Drawn(mission.loadAgent, mission.drawAgent);
    case "mission": return id === null
      ? new Drawn(mission.loadMissions, mission.drawMissions)
      : new Drawn(mission.loadMission, mission.drawMission);
    default: return new Drawn(nowView.load, nowView.draw);
  }
}

let view = null;
let shownAs = null;
let controller = null;
let loadedAt = 0;
let timer = null;
let took = 0;
let running = false;
let dirty = false;
let told = "";

/** Follow the route: make its view if it is another one, and load it. */
function navigate() {
  const route = current();
  if (location.hash === "#main") return;
  const name = `${route.view}/${route.id ?? ""}`;
  drawViews(route.view);
  replay.draw();
  if (name !== shownAs) {
    view?.unmount?.();
    const first = shownAs === null;
    shownAs = name;
    view = make(route);
    told = "";
    window.scrollTo(0, 0);
    // A screen reader begins to read the new view.
    if (!first) main.focus({ preventScroll: true });
    lastRoute = null;
  }
  showEvent(route);
  const key_ = withoutEvent();
  if (key_ !== lastRoute) {
    lastRoute = key_;
    load();
  }
}

let lastRoute = null;
// The view whose moment is being looked up, and whether another moment was chosen meanwhile.
let replaying = null;
let behind = false;
const withoutEvent = (more) => changed({ event: null, kind: null, count: null, ...more });

/** Load what the view shows. */
async function load() {
  const place = at() === null ? null : withoutEvent({ at: null });
  if (running && place !== null && place === replaying && performance.now() - loadedAt < PATIENCE) {
    // The slider moves on while the daemon looks a moment up: it is asked for the last one only.
    behind = true;
    return;
  }
  replaying = place;
  behind = false;
  clearTimeout(timer);
  timer = null;
  controller?.abort();
  const mine = new AbortController();
  controller = mine;
  running = true;
  dirty = false;
  loadedAt = performance.now();
  const shown = view;
  try {
    const drawn = await shown.load({ at: at(), route: current(), signal: mine.signal });
    if (mine.signal.aborted || !drawn) return;
    document.title = `${drawn.title} · Fleet`;
    if (drawn.announce && drawn.announce !== told) announce((told = drawn.announce));
    setProblem(null);
    main.setAttribute("aria-busy", "false");
    performance.mark("view drawn");
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  } finally {
    if (controller === mine) {
      running = false;
      took = performance.now() - loadedAt;
      if (behind) load();
      else if (dirty) again();
    }
  }
}

/**
 * Load again soon: at once if nothing was loaded within half a second. A load that takes long has
 * a longer pause behind it, and a tab that nobody sees waits until it is seen.
 */
function again() {
  if (at() !== null || view?.reloads === false) return;
  if (running || document.hidden) {
    dirty = true;
    return;
  }
  const pause = Math.min(Math.max(PAUSE, 2 * took), LONGEST_PAUSE);
  timer ??= setTimeout(load, Math.max(0, loadedAt + pause - performance.now()));
}

/** Whether an event can change what is shown: a mission shows its own events only. */
function concerns(event) {
  const { view: name, id } = current();
  if (name === "mission" && id !== null && event.mission_id && event.mission_id !== id) return false;
  return view?.concerns?.(event) ?? true;
}

function failed(error) {
  if (error instanceof ApiError && error.status === 401) return denied();
  if (!(error instanceof ApiError)) console.error(error);
  // The daemon or the server is away: what is shown stays, and is marked as old.
  if ((error.status === 0 || error.status === 503) && main.querySelector(".view")) return setProblem(error);
  if (view instanceof Drawn || !main.querySelector(".view")) {
    const told_ = error instanceof ApiError ? error : new ApiError(0, { kind: "internal", message: `The page made an error: ${error.message}` });
    replace(main, h("div", { class: "view" }, h("h1", {}, "This cannot be shown"), errorBox(told_, load),
      at() && h("p", {}, h("a", { href: changed({ at: null }) }, "Show it live"))));
    shownAs = `failed ${shownAs}`;
    return undefined;
  }
  return setProblem(error);
}

function denied() {
  key.drop();
  stream?.stop();
  stream = null;
  document.documentElement.setAttribute("data-denied", "");
  document.title = "No key · Fleet";
  replace(element("banner"));
  replace(main, h("div", { class: "view keyless" },
    h("h1", {}, "This page needs a new link"),
    h("p", {}, "Its key is not valid, or is no longer. A key ends with the server that gave it, and with the tab."),
    h("p", {}, "Run ", code("fleetctl web"), " in a terminal and open the link that it prints. If the page is served already, the command prints a new link of it.")));
}

// -- what is live ------------------------------------------------------------------------------

let stream = null;
let problem = null;
let lost = null;

function setProblem(error) {
  problem = error;
  drawBanner();
}

function setLink(state, word) {
  const link = element("link");
  link.className = `link ${state}`;
  if (link.textContent !== word) link.textContent = word;
}

function drawBanner() {
  const shown = lost ?? problem;
  replace(element("banner"), shown && [
    h("strong", {}, shown.message), " ", shown.hint, " ",
    h("button", { type: "button", onclick: () => { stream?.retry(); load(); } }, "Try again")]);
}

const AWAY = {
  message: "The daemon is away.",
  hint: "What is shown may be old. It goes on when the daemon is back; `fleetctl daemon status` tells more.",
};

function listen() {
  stream = follow({
    begin: (data) => {
      setNow(data.now);
      lost = null;
      setLink("on", "live");
      drawBanner();
      again();
    },
    event: (event) => changes(event.type) && concerns(event) && again(),
    link: ({ state }) => {
      lost = state === "away" ? AWAY : null;
      setLink(state === "away" ? "off" : "on", state === "away" ? "daemon away" : "live");
      drawBanner();
      if (state !== "away") again();
    },
    replaced: () => {
      replay.learn().catch(() => {});
      shownAs = null;
      navigate();
    },
    lost: (wait) => {
      lost = { message: "The connection is lost.", hint: `Trying again in ${duration(Math.max(1000, wait))}. If it stays away, run \`fleetctl web\` again.` };
      setLink("off", "not connected");
      drawBanner();
    },
    denied,
  });
}

let rests = null;

/** A tab that nobody sees for a while gives its connection back: a browser has six for a server. */
function seen() {
  clearTimeout(rests);
  if (document.hidden) {
    rests = setTimeout(() => stream?.rest(), REST);
  } else {
    stream?.retry();
    if (dirty) again();
  }
}

function announce(text) {
  element("announce").textContent = text;
}

// -- header, colours, keyboard -----------------------------------------------------------------

function drawViews(present) {
  replace(element("views"), h("ul", {}, VIEWS.map(([name, label]) =>
    h("li", {}, h("a", { href: href(name), "aria-current": name === present && "page" }, label)))));
}

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

/** A setting of this browser; where none can be kept, it lasts as long as the page. */
function setting(name, fallback) {
  let value = fallback;
  try {
    value = localStorage.getItem(name) ?? fallback;
  } catch { /* not allowed here */ }
  return {
    get: () => value,
    set: (next) => {
      value = next;
      try {
        localStorage.setItem(name, next);
      } catch { /* not allowed here */ }
    },
  };
}

const theme = setting("fleet-theme", "auto");
const singleKeys = setting("fleet-keys", "on");

function drawTheme() {
  const name = theme.get() in THEMES ? theme.get() : "auto";
  document.documentElement.setAttribute("data-theme", name);
  element("theme").textContent = THEMES[name];
  element("theme").setAttribute("aria-label", `Colours: ${THEMES[name]}`);
  element("theme").title = "Light, dark or the system's colours (t)";
}

function nextTheme() {
  const names = Object.keys(THEMES);
  theme.set(names[(names.indexOf(theme.get()) + 1) % names.length]);
  drawTheme();
}

const shortcuts = {
  get on() {
    return singleKeys.get() === "on";
  },
  turn: (on) => singleKeys.set(on ? "on" : "off"),
};

const KEYS = {
  1: () => go(href("now")),
  2: () => go(href("timeline")),
  3: () => go(href("mission")),
  4: () => go(href("search")),
  "/": () => {
    go(href("search"));
    element("search-q")?.focus();
  },
  r: () => element("slider").focus(),
  l: () => replay.goLive(),
  "[": () => replay.step(-1).catch(failed),
  "]": () => replay.step(1).catch(failed),
  t: nextTheme,
  "?": () => showHelp(shortcuts),
};

function pressed(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  if (element("dialog").open || !shortcuts.on) return;
  if (event.target.closest("input:not([type=range]), select, textarea")) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// -- the start ---------------------------------------------------------------------------------

const replay = new Replay(element("replay"));

async function start() {
  drawTheme();
  drawViews(current().view);
  element("theme").onclick = nextTheme;
  element("help").onclick = () => showHelp(shortcuts);
  element("skip").onclick = (event) => {
    event.preventDefault();
    main.focus();
  };
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", arrived);
  window.addEventListener("route", navigate);
  window.addEventListener("popstate", () => location.hash.startsWith("#token=") || navigate());
  setInterval(() => {
    tick(document);
    if (at() !== null || document.hidden) return;
    replay.draw();
    view?.tick?.();
  }, 1000);
  document.addEventListener("visibilitychange", seen);
  await arrived();
  // A tab that was opened behind others.
  if (document.hidden) seen();
}

/** Take the token of a link, then show the route. */
async function arrived() {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token) {
    // Before anything else: the token is in no history and no bookmark.
    history.replaceState(null, "", "#/now");
    try {
      await exchange(token);
    } catch (error) {
      // The page was opened twice with one link, and has its key already.
      if (!key.get()) {
        const retry = () => location.replace(`#token=${token}`);
        return error.status === 401 ? denied() : replace(main, errorBox(error, retry));
      }
    }
    document.documentElement.removeAttribute("data-denied");
    shownAs = null;
  }
  if (!key.get()) return denied();
  if (!stream) {
    listen();
    replay.learn().catch(() => {});
  }
  return navigate();
}

start();
