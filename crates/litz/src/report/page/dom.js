// Makes elements and writes numbers. Every text of a model comes into the page as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") Object.entries(value).forEach(([event, run]) => element.addEventListener(event, run));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function scaled(value, base, units) {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) {
    value /= base;
    unit += 1;
  }
  return `${unit === 0 ? +value.toFixed(2) : value.toFixed(value < 10 ? 2 : 1)}${units[unit] ? " " + units[unit] : ""}`;
}

const NONE = "-";
const bytes = (value) => (value === null || value === undefined ? NONE : scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]));
const count = (value) => (value === null || value === undefined ? NONE : scaled(value, 1000, ["", "k", "M", "G", "T"]));
const percent = (value) => (value === null || value === undefined ? NONE : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`);

function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return value >= 0.1 || value === 0 ? `${value.toFixed(value < 10 ? 3 : 1)} ms` : `${(1000 * value).toFixed(value < 0.001 ? 2 : 1)} us`;
}

const plural = (number, what) => `${number} ${what}${number === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

// Rows of a table, a few at first, and a button for more of them.
function table(heads, rows, draw, { first = 20, more = 200, id = null } = {}) {
  const body = el("tbody");
  let shown = 0;
  const button = el("button", { on: { click: () => show(more) } });
  function show(number) {
    body.append(...rows.slice(shown, shown + number).map(draw));
    shown = Math.min(rows.length, shown + number);
    button.hidden = shown >= rows.length;
    button.textContent = `${rows.length - shown} more`;
  }
  show(first);
  const head = heads.map((head) => (head.startsWith(">") ? el("th", { class: "num" }, head.slice(1)) : el("th", {}, head)));
  return el("div", { class: "scroll" }, el("table", { id }, el("thead", {}, el("tr", {}, head)), body), button);
}

const num = (text) => el("td", { class: "num" }, text);
const bar = (share, kind = "") => el("span", { class: `bar ${kind}`, style: `width:${(90 * Math.min(1, share || 0)).toFixed(1)}px` });
