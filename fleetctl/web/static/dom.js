/**
 * Elements, made of text and attributes only. Texts of agents go through `h` and `s` into text
 * nodes; nothing in this page parses HTML.
 */

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = /^on[a-z]+$/;
// What a node may be given; the handler is a property, so that `morph` can hand it on.
const FORBIDDEN = new Set(["style", "innerHTML", "outerHTML", "srcdoc", "src"]);

/** Make an HTML element: `h("p", {class: "hint"}, "text", otherNode)`. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.test(name)) node[name] = value;
    else if (FORBIDDEN.has(name)) throw new Error(`no ${name} here`);
    else if (name === "href") node.setAttribute("href", local(value));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...nodes(children));
  return node;
}

/** A link leads to a view of this page only. */
function local(href) {
  if (!href.startsWith("#/")) throw new Error("links lead to views of this page only");
  return href;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Make `from` look like `to` and keep the nodes that are the same, so that the focus, the place in
 * a scrolled list and an opened part stay. Children with `data-key` are found by it.
 */
export function morph(from, to) {
  syncAttributes(from, to);
  const keyed = new Map();
  for (const child of from.children) {
    const key = child.getAttribute("data-key");
    if (key !== null) keyed.set(key, child);
  }
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = wanted.nodeType === 1 ? wanted.getAttribute("data-key") : null;
    let found = key === null ? at : keyed.get(key);
    if (found && !alike(found, wanted)) found = undefined;
    if (!found) {
      from.insertBefore(wanted, at);
    } else {
      if (found !== at) from.insertBefore(found, at);
      else at = at.nextSibling;
      if (found.nodeType === 3) {
        if (found.data !== wanted.data) found.data = wanted.data;
      } else morph(found, wanted);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(one, other) {
  return (
    one.nodeType === other.nodeType &&
    one.nodeName === other.nodeName &&
    (one.nodeType !== 1 || one.getAttribute("data-key") === other.getAttribute("data-key"))
  );
}

function syncAttributes(from, to) {
  // The content policy lets a script set a style, but not the attribute.
  if (from.style.cssText !== to.style.cssText) from.style.cssText = to.style.cssText;
  for (const { name, value } of [...to.attributes]) {
    if (name !== "style" && from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // What a person opened stays open.
    if (!to.hasAttribute(name) && name !== "open" && name !== "style") from.removeAttribute(name);
  }
  for (const name of ["onclick", "onkeydown", "onchange", "oninput", "onsubmit", "ontoggle"]) {
    if (from[name] !== to[name]) from[name] = to[name];
  }
}

/** Replace the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren(...nodes(children));
}

/** Set a length that depends on data, which the content policy allows by script only. */
export function size(node, property, value) {
  node.style.setProperty(property, value);
  return node;
}
