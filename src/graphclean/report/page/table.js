// All rows, filtered and sorted; only those in view are in the DOM.

const EXTRA = 8;
const narrow = matchMedia("(max-width: 640px)");
/** Row height in pixels: two lines on a phone. */
const lineHeight = () => (narrow.matches ? 60 : 40);

function startTable(root) {
  const columns = [
    { name: "picture", title: "", show: hasPictures },
    { name: "id", title: "Name", compare: byName },
    ...facts.shown.map((column) => ({ name: "shown", title: column, column, compare: byText(column) })),
    { name: "verdict", title: "Verdict", compare: by(rows.verdict) },
    { name: "given", title: "Given", compare: by(rows.given) },
    { name: "proposed", title: "Looks like", compare: by(rows.proposed) },
    { name: "confidence", title: "Confidence", compare: by(rows.confidence), kind: "bar-cell" },
    { name: "quality", title: "Label quality", compare: by(rows.quality), kind: "bar-cell" },
    { name: "ood", title: "OOD score", compare: by(rows.ood), kind: "bar-cell" },
  ].filter((column) => column.show !== false);
  const state = { text: "", verdicts: new Set(), label: "", sort: null, down: false };
  let order = [];
  let current = 0;
  let names = null;
  let places = null;

  function by(values) {
    // Rows without a score come last in either order.
    return (a, b, sign) => {
      const [x, y] = [values[a], values[b]];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x - y);
    };
  }
  function byText(column) {
    const collator = new Intl.Collator("en", { numeric: true });
    return (a, b, sign) => sign * collator.compare(cell(column, a), cell(column, b));
  }
  function byName(a, b, sign) {
    if (places === null) {
      const collator = new Intl.Collator("en", { numeric: true });
      const sorted = [...rows.id.keys()].sort((x, y) => collator.compare(rows.id[x], rows.id[y]));
      places = new Int32Array(size);
      sorted.forEach((row, place) => { places[row] = place; });
    }
    return sign * (places[a] - places[b]);
  }

  const search = make("input", { type: "search", placeholder: facts.shown.length ? "Name, label or text" : "Name or label", "aria-label": "Filter by name, label or text", on: { input: settled(() => set({ text: search.value })) } });
  const chips = facts.verdicts.filter((name) => facts.counts[name]).map((name) =>
    make("button", { type: "button", class: "button", "aria-pressed": "false", "data-chip": name, on: { click: () => toggle(name) } }, mark(verdictLook(name)), name));
  const classes = choice("Given", [["", "any"], ...facts.classes.map((name, place) => [String(place), name])], (value) => set({ label: value }));
  const said = make("p", { class: "said", role: "status" });
  const save = make("button", { type: "button", class: "button", on: { click: saveRows } }, "Save as CSV");
  const header = make("div", { class: "line header", role: "row" }, ...columns.map((column) =>
    make("div", { class: `cell ${column.kind ?? column.name}`, role: "columnheader", "data-column": column.column ?? column.name },
      column.compare ? make("button", { type: "button", on: { click: () => sortBy(column) } }, column.title) : make("span", { class: "off-screen" }, "Picture"))));
  const space = make("div", { role: "presentation" });
  const view = make("div", { class: "rows", tabindex: "-1", role: "rowgroup", on: { scroll: () => requestAnimationFrame(paint) } }, space);
  const none = make("p", { class: "empty", hidden: true }, "No row matches.");

  function toggle(name) {
    const verdicts = new Set(state.verdicts);
    if (!verdicts.delete(name)) verdicts.add(name);
    set({ verdicts });
  }
  function sortBy(column) {
    const again = state.sort === column;
    set({ sort: again && state.down ? null : column, down: again && !state.down });
  }

  function set(change) {
    Object.assign(state, change);
    const wanted = new Set([...state.verdicts].map(code));
    const text = state.text.trim().toLowerCase();
    if (text && names === null) names = rows.id.map((id, row) => [id, given(row), proposed(row), ...facts.shown.map((column) => cell(column, row))].join("\n").toLowerCase());
    order = [];
    for (let row = 0; row < size; row++) {
      if (wanted.size && !wanted.has(rows.verdict[row])) continue;
      if (state.label !== "" && rows.given[row] !== Number(state.label)) continue;
      if (text && !names[row].includes(text)) continue;
      order.push(row);
    }
    if (state.sort) order.sort((a, b) => state.sort.compare(a, b, state.down ? -1 : 1) || a - b);
    current = 0;
    for (const chip of chips) chip.setAttribute("aria-pressed", String(state.verdicts.has(chip.dataset.chip)));
    for (const [number, column] of columns.entries()) {
      const head = header.children[number];
      if (state.sort === column) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const button = head.querySelector("button");
      if (button) button.textContent = column.title + (state.sort === column ? (state.down ? " ↓" : " ↑") : "");
    }
    search.value = state.text;
    classes.select.value = state.label;
    const all = size < facts.total ? "rows on this page" : "rows";
    said.textContent = order.length === size ? `${count(size)} ${all}` : `${count(order.length)} of ${count(size)} ${all}`;
    grid.setAttribute("aria-rowcount", String(order.length + 1));
    none.hidden = order.length > 0;
    space.style.height = `${order.length * lineHeight()}px`;
    view.scrollTop = 0;
    paint();
  }

  function draw_(row, column) {
    const box = make("div", { class: `cell ${column.kind ?? column.name}`, role: "gridcell" });
    const value = rows[column.name]?.[row];
    if (column.name === "picture") box.append(picture(row, "") ?? "");
    else if (column.name === "id") fill(box, { title: rows.id[row] }, [rows.id[row]]);
    else if (column.name === "shown") fill(box, { title: cell(column.column, row) }, [cell(column.column, row)]);
    else if (column.name === "verdict") box.append(verdictMark(verdict(row)));
    else if (column.name === "given") box.append(label(given(row)));
    else if (column.name === "proposed") {
      const done = reviewing && review.isDone(row);
      if (done || verdict(row) === "relabel") box.classList.add("moved");
      box.append(done ? "✓ " : "", label(done ? review.outcome(row) : looks(row)));
    } else if (column.kind === "bar-cell" && value !== null) {
      const color = { ood: "--ood", quality: "--keep" }[column.name] ?? `--${verdict(row)}`;
      box.append(score(value), make("span", { class: "meter", vars: { "--c": `var(${color})`, "--w": `${value / 10}%` } }, make("i")));
    } else box.append(score(value));
    return box;
  }

  function paint() {
    const tall = lineHeight();
    const first = Math.max(0, Math.floor(view.scrollTop / tall) - EXTRA);
    const last = Math.min(order.length, Math.ceil((view.scrollTop + view.clientHeight) / tall) + EXTRA);
    const lines = [];
    for (let place = first; place < last; place++) {
      const row = order[place];
      lines.push(make("div", { class: `line${place === current ? " current" : ""}`, id: `row-${row}`, role: "row", "aria-rowindex": place + 2, vars: { top: `${place * tall}px` },
        on: { click: () => { current = place; paint(); detail.open(order, place); } } }, ...columns.map((column) => draw_(row, column))));
    }
    space.replaceChildren(...lines);
    if (order.length) grid.setAttribute("aria-activedescendant", `row-${order[current]}`);
    else grid.removeAttribute("aria-activedescendant");
  }

  function onKey(event) {
    if (event.target.closest("button")) return;
    const tall = lineHeight();
    const page = Math.max(1, Math.floor(view.clientHeight / tall) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -current, End: order.length - 1 - current }[event.key];
    if (event.key === "Enter" && order.length) detail.open(order, current);
    else if (step === undefined) return;
    else {
      current = Math.max(0, Math.min(order.length - 1, current + step));
      const top = current * tall;
      if (top < view.scrollTop) view.scrollTop = top;
      if (top + tall > view.scrollTop + view.clientHeight) view.scrollTop = top + tall - view.clientHeight;
      paint();
    }
    event.preventDefault();
  }

  // A spreadsheet executes text that starts like a formula: prefix it with a quote, as in verdicts.csv.
  function csvCell(value) {
    const text = String(value ?? "");
    const inert = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  }
  function saveRows() {
    const lines = [["id", ...facts.shown, "given_label", "proposed_label", "verdict", "confidence", "label_quality", "ood_score"].map(csvCell).join(",")];
    for (const row of order) {
      const labels = [rows.given[row], rows.proposed[row]].map((place) => (place < 0 ? "" : facts.classes[place]));
      const scores = [rows.confidence[row], rows.quality[row], rows.ood[row]].map((value) => (value === null ? "" : value / 1000));
      lines.push([rows.id[row], ...facts.shown.map((column) => cell(column, row)), ...labels, verdict(row), ...scores].map(csvCell).join(","));
    }
    const address = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    make("a", { href: address, download: "rows.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  const grid = make("div", { class: `grid${hasPictures ? "" : " no-pictures"}`, role: "grid", tabindex: "0", vars: { "--shown": facts.shown.length ? `repeat(${facts.shown.length}, minmax(0, 2.6fr))` : " " }, "aria-label": "Verdicts; arrows move, Enter opens a row", on: { keydown: onKey } },
    make("div", { role: "rowgroup" }, header), view);
  root.append(make("div", { class: "controls" }, search, ...chips, facts.classes.length > 1 ? classes.label : null, make("span", { class: "fill" }), said, save), grid, none);
  find("table-about").textContent = size < facts.total
    ? `${count(size)} of ${count(facts.total)} ${facts.things}: the most confident suspects, and a random sample of the others. Search, filters and “Save as CSV” cover these; all rows are in verdicts.parquet and verdicts.csv.`
    : `Every one of the ${count(size)} ${facts.things}. Click a heading to sort; Enter or a click opens a row.`;
  set({});
  new ResizeObserver(() => paint()).observe(view);
  narrow.addEventListener("change", () => set({}));
  return { set, paint };
}
