// Elements, and their replacement by a new view's.

const SVG = "http://www.w3.org/2000/svg";

/**
 * h makes an element: h("a", {href: "#/", onclick: go}, "text", other, [more]). Null and false
 * children and attributes are omitted. A key identifies a row of a list.
 */
export const h = (tag, props, ...children) =>
  fill(document.createElement(tag), props, children);

/** s is h for SVG. */
export const s = (tag, props, ...children) =>
  fill(document.createElementNS(SVG, tag), props, children);

function fill(element, props, children) {
  element.handlers = {};
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "key") element.key = value;
    else if (name.startsWith("on")) element[name] = element.handlers[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  return append(element, children);
}

/** show replaces the content of an element. It keeps matching elements, with their focus, selection and input. */
export function show(parent, ...children) {
  become(parent, append(document.createDocumentFragment(), children));
}

function append(parent, children) {
  parent.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined &&
    c !== false && c !== ""));
  return parent;
}

function become(parent, fresh) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.key !== undefined) keyed.set(child.key, child);
  let old = parent.firstChild;
  for (const child of [...fresh.childNodes]) {
    let match = null;
    if (child.key !== undefined) match = keyed.get(child.key);
    else if (old && old.key === undefined) match = old;
    if (!match || match.nodeName !== child.nodeName) {
      parent.insertBefore(child, old);
      continue;
    }
    if (match === old) old = old.nextSibling;
    else parent.insertBefore(match, old);
    change(match, child);
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

function change(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of Object.keys(old.handlers ?? {})) {
    if (!fresh.handlers[name]) old[name] = null;
  }
  Object.assign(old, fresh.handlers);
  old.handlers = fresh.handlers;
  become(old, fresh);
}
