/** The way to the server: the key, calls, and the stream of events. */

const KEY = "fleet-key";

/** An error with the words of the server. */
export class ApiError extends Error {
  constructor(status, { kind, message, hint = null, data = {} }) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.hint = hint;
    this.data = data;
  }
}

const UNREACHED = {
  kind: "unreachable",
  message: "The server of this page does not answer.",
  hint: "Run `fleetctl web` again, and open the link that it prints.",
};

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  drop: () => sessionStorage.removeItem(KEY),
};

/** Exchange the token of a link for a key; a token works once. */
export async function exchange(token) {
  const answer = await get("/key", { "X-Fleet-Token": token });
  key.set(answer.key);
}

/** Call a method of the daemon that changes nothing. */
export async function call(method, params = {}, signal = undefined) {
  const given = Object.fromEntries(
    Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  const query = Object.keys(given).length
    ? `?params=${encodeURIComponent(JSON.stringify(given))}`
    : "";
  return get(`/api/${method}${query}`, { "X-Fleet-Key": key.get() ?? "" }, signal);
}

/** The first event after a moment; undefined where there is none. Those before it are of the moment. */
export async function seqAfter(time, signal = undefined) {
  const since = new Date(Date.parse(time) + 1).toISOString();
  const { events } = await call("event.list", { since_time: since, limit: 1 }, signal);
  return events[0]?.seq;
}

async function get(path, headers, signal) {
  let answer;
  try {
    answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, UNREACHED);
  }
  const body = await answer.json().catch(() => null);
  if (answer.ok && body !== null) return body;
  throw new ApiError(
    answer.status,
    body?.error ?? { kind: "internal", message: `The server answered with ${answer.status}.` },
  );
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 15_000;
// The server sends something every 15 s; after three times that, nobody is there.
const SILENCE = 45_000;

/**
 * Follow the events of the fleet, again and again until `stop` is called. `on` has functions for
 * `begin`, `event`, `link`, `replaced`, `lost(wait)` and `denied`.
 */
export function follow(on) {
  let stopped = false;
  let resting = false;
  let position = null;
  let wait = FIRST_WAIT;
  let controller = null;
  let wake = () => {};

  const deliver = ({ event, id, data }) => {
    if (id !== null) position = id;
    if (event === "replaced") position = null;
    if (event === "begin") wait = FIRST_WAIT;
    on[event]?.(data);
  };

  const run = async () => {
    while (!stopped) {
      if (resting) {
        await new Promise((done) => (wake = done));
        continue;
      }
      controller = new AbortController();
      try {
        await read(position, controller, deliver);
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) {
          on.denied(error);
          return;
        }
      }
      if (stopped) return;
      if (resting) continue;
      on.lost(wait);
      // Some more or less, so that many pages do not come back at once.
      await new Promise((done) => {
        wake = done;
        setTimeout(done, wait * (0.75 + Math.random() / 2));
      });
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  };
  run();
  return {
    /** Try again at once. */
    retry: () => {
      resting = false;
      wait = FIRST_WAIT;
      wake();
    },
    /** Give the connection back until `retry` is called. */
    rest: () => {
      resting = true;
      controller?.abort();
      wake();
    },
    stop: () => {
      stopped = true;
      controller?.abort();
      wake();
    },
  };
}

async function read(position, controller, deliver) {
  const headers = { "X-Fleet-Key": key.get() ?? "" };
  if (position !== null) headers["Last-Event-ID"] = position;
  const answer = await fetch("/events", {
    headers, signal: controller.signal, cache: "no-store", credentials: "omit",
  });
  if (!answer.ok) {
    const body = await answer.json().catch(() => null);
    throw new ApiError(answer.status, body?.error ?? { kind: "internal", message: "no events" });
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parse = parser(deliver);
  let timer;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(), SILENCE);
  };
  try {
    for (;;) {
      alive();
      const { done, value } = await reader.read();
      if (done) return;
      parse(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** A parser of server-sent events: feed it with text in any portions. */
export function parser(deliver) {
  let rest = "";
  let name = "message";
  let id = null;
  let data = [];
  const line = (text) => {
    if (text === "") {
      if (data.length) deliver({ event: name, id, data: JSON.parse(data.join("\n")) });
      name = "message";
      id = null;
      data = [];
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "id") id = value;
    else if (field === "data") data.push(value);
  };
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n/);
    rest = lines.pop();
    lines.forEach(line);
  };
}
