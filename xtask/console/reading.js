// What the browser tests read from a page and its answers.
"use strict";
const { TOKEN, REASON } = require("./lab.js");

const POLICY = {
  "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
  "form-action": "'self'", "base-uri": "'none'", "frame-ancestors": "'none'",
};

const sleep = milliseconds => new Promise(done => setTimeout(done, milliseconds));
const until = async (seconds, holds) => {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    if (await holds()) return true;
    if (Date.now() > end) return false;
    await sleep(100);
  }
};

const directives = header => Object.fromEntries((header || "").split(";").map(part => {
  const [name, ...values] = part.trim().split(/\s+/);
  return [name, values.join(" ")];
}));
const isStrict = header => {
  const sent = directives(header);
  return Object.keys(sent).length === Object.keys(POLICY).length && Object.entries(POLICY).every(([name, value]) => sent[name] === value);
};

// Names what has the focus, and how it can be seen.
const focused = page => page.evaluate(() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  if (!element.dataset.tabbed) element.dataset.tabbed = "new";
  const style = getComputedStyle(element);
  // The middle of what the window shows of it: a region may be taller than the window, and a link has two lines.
  const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2;
  const points = [element.getBoundingClientRect(), ...element.getClientRects()]
    .map(box => [middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight)]);
  const seen = points.some(([x, y]) => { const at = document.elementFromPoint(x, y); return at && (element.contains(at) || at === element.ownerSVGElement); });
  const isNew = element.dataset.tabbed === "new";
  element.dataset.tabbed = "seen";
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const color = style.outlineColor !== style.backgroundColor && !/, 0\)$/.test(style.outlineColor);
  return { isNew, ring: ring && color, seen, html: element.outerHTML.slice(0, 140) };
});

const median = numbers => [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

// A field's value that the console takes.
const valueOf = field => {
  if (field.value || !field.required) return field.value;
  return { hostname: `foreign-${Date.now()}`, reason: REASON, confirm: field.placeholder, token: TOKEN }[field.name] ?? "x";
};

// Where the forms of a page send what, in the order of their buttons.
const readForms = page => page.evaluate(() => [...document.querySelectorAll("form[method=post]")].flatMap(form => {
  const fields = [...form.elements].filter(field => field.name)
    .map(({ name, value, placeholder, required }) => ({ name, value, placeholder, required }));
  return [...form.querySelectorAll("button")].map(button => ({
    path: new URL(button.getAttribute("formaction") || form.getAttribute("action"), location.href).pathname,
    fields, isDisabled: button.disabled,
  }));
}));
const FORM = { "content-type": "application/x-www-form-urlencoded" };
const cookiesOf = async context => (await context.cookies()).map(cookie => `${cookie.name}=${cookie.value}`).join("; ");
const encode = fields => new URLSearchParams(fields.map(field => [field.name, valueOf(field)])).toString();

module.exports = { sleep, until, isStrict, focused, median, readForms, cookiesOf, encode, FORM };
