// The data of the page. Rows are numbered from 0; scores are thousandths, null if missing.

const facts = JSON.parse(find("facts").textContent);
const rows = JSON.parse(find("rows").textContent);
const size = rows.id.length;
const reviewing = facts.mode === "review";
const hasPictures = Object.keys(facts.pictures).length > 0;

const className = (code) => (code < 0 ? "no label" : facts.classes[code]);
const given = (row) => className(rows.given[row]);
const proposed = (row) => className(rows.proposed[row]);
const verdict = (row) => facts.verdicts[rows.verdict[row]];
const score = (thousandths, digits = 2) => (thousandths === null ? "–" : (thousandths / 1000).toFixed(digits));
/** The probability that a row's verdict (or, if uncertain, its label) is right, in words and at most 99 %; null without a verdict. */
const confidence = (row) =>
  rows.confidence[row] === null ? null : `${verdict(row) === "uncertain" ? "label " : ""}${Math.min(99, Math.round(rows.confidence[row] / 10))} % likely right`;

/** The value of an additional source column. */
const cell = (column, row) => rows.cells[column][row];
/** The first non-empty additional value, truncated; otherwise the name. */
const gist = (row, length = 160) => {
  const text = facts.shown.map((column) => cell(column, row).trim()).find(Boolean) ?? "";
  return text.length > length ? `${text.slice(0, length)}…` : text || rows.id[row];
};
/** The non-empty additional columns with their values, without the one used by `gist` if that is shown elsewhere (`told`). */
const cells = (row, told = false) => make("dl", { class: "cells" }, ...facts.shown.filter((column) => cell(column, row).trim()).slice(told ? 1 : 0).map((column) =>
  make("div", {}, make("dt", {}, column), make("dd", {}, cell(column, row)))));
const code = (name) => facts.verdicts.indexOf(name);

/** All rows with a verdict. */
function rowsWith(name) {
  const wanted = code(name);
  const found = [];
  for (let row = 0; row < size; row++) if (rows.verdict[row] === wanted) found.push(row);
  return found;
}

/** All rows with photo quality issues. */
const rowsWithIssues = () => [...rows.id.keys()].filter((row) => rows.issues[row].length);
const issues = (row) => rows.issues[row].map((place) => facts.issues[place]).join(", ");

/** The data URL of a row's picture, or null. */
function pictureOf(row) {
  const text = facts.pictures[row];
  if (text === undefined) return null;
  return `data:image/${text.startsWith("iVBOR") ? "png" : "jpeg"};base64,${text}`;
}

/** A row's picture, rendered crisply if it has few pixels; null if there is none. */
function picture(row, alt) {
  const source = pictureOf(row);
  if (source === null) return null;
  const image = make("img", { src: source, alt, decoding: "async" });
  const sharpen = () => image.classList.toggle("small", image.naturalWidth > 0 && image.naturalWidth <= 64);
  image.addEventListener("load", sharpen);
  return image;
}

/** Describe a row in words, for screen readers and tooltips. */
function describe(row) {
  const label = given(row);
  return {
    keep: `label ${label} fits`,
    relabel: `given ${label}, looks like ${proposed(row)}`,
    ood: `given ${label}, fits no class; nearest is ${proposed(row)}`,
    uncertain: `given ${label}, undecided`,
    unlabeled: `no label, looks like ${proposed(row)}`,
    unreadable: "no image",
  }[verdict(row)];
}

/** The class that a row looks like, if any. */
const looks = (row) => (verdict(row) === "ood" ? "no class" : proposed(row));

const label = (text, name = "") => make("span", { class: `label ${name}`.trim() }, text);

/** given → proposed, as far as the verdict needs it. */
function change(row) {
  const kind = verdict(row);
  const line = make("p", { class: "change" });
  if (kind === "relabel") {
    line.append(label(given(row), "was"), make("span", { class: "to", "aria-label": "looks like" }, "→"), label(proposed(row)));
  } else if (kind === "ood") {
    line.append(label(given(row), "was"), make("span", { class: "to", "aria-label": "looks like" }, "→"), "no class");
  } else if (kind === "uncertain" && rows.given[row] !== rows.proposed[row]) {
    line.append(label(given(row)), make("span", { class: "to" }, "or perhaps"), label(proposed(row), "to"));
  } else line.append(label(rows.given[row] < 0 ? proposed(row) : given(row)));
  return line;
}
