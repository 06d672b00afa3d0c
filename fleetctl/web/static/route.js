/** The route in the fragment: `#/timeline?from=…&at=…`. */

/** Read a fragment. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/").map(unescape);
  return { view: view || "now", id: rest.join("/") || null, params: new URLSearchParams(query) };
}

function unescape(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Write a fragment; parameters that are null or empty are left out. */
export function href(view, id = null, params = {}) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries({ at: at(), ...params })) {
    if (value !== null && value !== undefined && value !== "") given.set(name, value);
  }
  const query = given.toString();
  return `#/${view}${id === null ? "" : `/${encodeURIComponent(id)}`}${query ? `?${query}` : ""}`;
}

/** The present route. */
export const current = () => parse(location.hash);

/** The moment of the replay as the route has it, or null when live. */
export const at = () => {
  const given = current().params.get("at");
  return given && Number.isFinite(Date.parse(given)) ? given : null;
};

/** The present route with other parameters; null takes one away. */
export function changed(params) {
  const { view, id, params: present } = current();
  return href(view, id, { ...Object.fromEntries(present), ...params });
}

/** Go to a route; `quietly` leaves no entry in the history. */
export function go(hash, quietly = false) {
  if (hash === location.hash) return;
  if (quietly) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  window.dispatchEvent(new Event("route"));
}
