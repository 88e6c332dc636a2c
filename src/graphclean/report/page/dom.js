// The only place where elements are created: strings only ever become text.

/**
 * @param {string} tag
 * @param {Object<string, any>} props attributes; `on` holds listeners, `vars` style variables, `class` the class.
 * @param {...(Node|string|null)} children
 */
const make = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
const draw = (tag, props = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listen] of Object.entries(value)) node.addEventListener(event, listen);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const find = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en-GB");
const count = (value) => numbers.format(value);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** A select element with a label. */
function choice(title, options, onChange) {
  const select = make("select", { on: { change: () => onChange(select.value) } });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  return { select, label: make("label", {}, title, select) };
}

/** Debounce `act`: call it once, shortly after the last of many calls. */
function settled(act, wait = 120) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), wait);
  };
}
