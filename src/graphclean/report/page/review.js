// Decisions: sent to the server one by one, and shown wherever a sample is.

const review = (() => {
  /** What holds for each row that was decided on, the latest last. */
  const states = new Map();
  /** Rows of which a decision is on its way: a key pressed twice is one decision. */
  const sending = new Set();
  /** The row whose labels were opened by key: after the choice it goes on, as with other keys. */
  let asked = null;
  const runRow = (row) => (rows.row ? rows.row[row] : row);
  const suspects = () => ["relabel", "ood", "uncertain"].reduce((sum, name) => sum + facts.counts[name], 0);
  let bar = null;

  async function ask(path, options = {}) {
    const answer = await fetch(path, { ...options, headers: { "X-Token": facts.token, "Content-Type": "application/json" } });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  async function send(row, kind, name = null) {
    if (sending.has(row)) return;
    sending.add(row);
    try {
      const now = await ask("/decide", { method: "POST", body: JSON.stringify({ row: runRow(row), kind, label: name }) });
      states.delete(row);
      if (now) states.set(row, now);
      complain("");
      show(row);
    } catch (error) {
      complain(error instanceof TypeError ? "Not saved: the server does not answer. Run graphclean review again and open the address that it prints; all that was saved is kept." : `Not saved: ${error.message}`);
    } finally {
      sending.delete(row);
    }
  }

  /** In the bar, and in an open dialog, which hides and silences the bar. */
  function complain(text) {
    bar.alarm.textContent = text;
    bar.alarm.hidden = !text;
    const open = detail.isOpen() ? find("detail").querySelector(".actions") : null;
    open?.querySelector("[role=alert]")?.remove();
    if (text) open?.append(make("strong", { role: "alert" }, text));
  }

  /** Puts a row's state into every place that shows it. */
  function show(row) {
    for (const place of document.querySelectorAll(`[data-actions="${row}"]`)) {
      const focused = place.contains(document.activeElement) ? document.activeElement.dataset.kind : undefined;
      const fresh = actions(row);
      place.replaceWith(fresh);
      if (focused) (fresh.querySelector(`[data-kind="${focused}"]`) ?? fresh.querySelector("button")).focus();
    }
    for (const card of document.querySelectorAll(`.card[data-row="${row}"]`)) card.classList.toggle("done", states.has(row));
    table.paint();
    count_();
  }

  function count_() {
    const done = [...states.keys()].filter((row) => ["relabel", "ood", "uncertain"].includes(verdict(row))).length;
    bar.text.textContent = `${count(done)} of ${count(suspects())} suspects reviewed`;
    bar.meter.style.setProperty("--w", `${(100 * done) / Math.max(1, suspects())}%`);
    bar.undo.disabled = states.size === 0;
  }

  const outcome = (state) => (state.label === null ? "no class" : state.label);
  const words = {
    relabel: ["Accept", "Reject"],
    ood: ["Accept", "Reject"],
    uncertain: ["Keep label", null],
    keep: ["Keep label", null],
    unlabeled: ["Accept", null],
    unreadable: [null, null],
  };

  /** The buttons of a row, or what was decided. */
  function actions(row) {
    const state = states.get(row);
    const box = make("div", { class: "actions", "data-actions": row });
    if (state) {
      box.append(make("p", { class: "outcome" }, "✓ ", label(outcome(state))),
        make("button", { type: "button", class: "button", "data-kind": "undo", on: { click: () => send(row, "undo") } }, "Undo"));
      return box;
    }
    const [yes, no] = words[verdict(row)];
    const button = (kind, text, key, title) => make("button", { type: "button", class: "button", "data-kind": kind, "aria-keyshortcuts": key, title, on: { click: () => send(row, kind) } }, text);
    if (yes) box.append(button("accept", yes, "A", `it is ${verdict(row) === "uncertain" || verdict(row) === "keep" ? given(row) : looks(row)} (A)`));
    if (no) box.append(button("reject", no, "R", `it is ${given(row)}, as labeled (R)`));
    // The classes come when they are asked for: a thousand of them on every card would be slow.
    const fill = () => {
      if (other.length === 2) other.append(...facts.classes.map((name, place) => make("option", { value: place }, name)));
    };
    const choose = async () => {
      await (other.value === "none" ? send(row, "remove") : send(row, "label", facts.classes[Number(other.value)]));
      if (asked === row && states.has(row)) goOn(row);
      asked = null;
    };
    // On a closed list an arrow or a letter would be a choice already, and so a decision: it opens the list instead.
    const openFirst = (event) => {
      if (!other.showPicker || event.ctrlKey || event.metaKey || event.altKey) return;
      if (!event.key.startsWith("Arrow") && event.key.length > 1) return;
      event.preventDefault();
      other.showPicker();
    };
    const other = make("select", { "aria-label": "Another label", "aria-keyshortcuts": "L", "data-kind": "label", on: { focus: fill, pointerdown: fill, keydown: openFirst, change: choose } },
    make("option", { value: "", disabled: true, selected: true }, "Other…"), make("option", { value: "none" }, "no class"));
    box.append(other);
    return box;
  }

  /** Undo the last decision, and tell of which row it was. */
  async function undo() {
    const last = [...states.keys()].at(-1);
    if (last !== undefined) await send(last, "undo");
    return last;
  }

  /** Go on to the next: in the dialog, or to the next card, showing more where it was the last, then the next gallery. */
  function goOn(row) {
    if (detail.isOpen()) return detail.move(1);
    const card = document.querySelector(`.card[data-row="${row}"]`);
    if (!card) return;
    if (!card.closest("li").nextElementSibling) card.closest("[data-gallery]").querySelector(".more button:not([hidden])")?.click();
    const all = [...document.querySelectorAll(".cards .open")];
    const next = all[all.indexOf(card.querySelector(".open")) + 1];
    if (next) goTo(next);
  }

  /** Go to the first card that waits for a decision, showing more until there is one. */
  function goToFirst() {
    for (const gallery of document.querySelectorAll("[data-gallery]")) {
      for (;;) {
        const waiting = gallery.querySelector(".card:not(.done) .open");
        if (waiting) return goTo(waiting);
        const more = gallery.querySelector(".more button:not([hidden])");
        if (!more) break;
        more.click();
      }
    }
  }

  async function onKey(event) {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    const card = event.target.closest(".card");
    const row = detail.isOpen() ? detail.row() : card ? Number(card.dataset.row) : null;
    if (key === "u") {
      const row_ = await undo();
      const there = document.querySelector(`.card[data-row="${row_}"] .open`);
      if (detail.isOpen()) detail.turnTo(row_);
      else if (there) goTo(there);
    } else if (row === null) {
      // No card was chosen: the key leads to one, and decides nothing yet.
      if (!["a", "r", "l", "x"].includes(key)) return;
      goToFirst();
    } else if (key === "l") {
      const list = (detail.isOpen() ? find("detail") : card).querySelector("select");
      if (!list) return;
      asked = row;
      list.focus();
      list.showPicker?.();
    } else {
      const kind = { a: "accept", r: "reject", x: "remove" }[key];
      const allowed = { accept: words[verdict(row)][0], reject: words[verdict(row)][1], remove: true };
      if (!kind || !allowed[kind] || states.has(row)) return;
      await send(row, kind);
      if (!states.has(row)) return;
      goOn(row);
    }
    event.preventDefault();
  }

  async function start() {
    const meter = make("i");
    const text = make("span", { role: "status" });
    const alarm = make("strong", { role: "alert", hidden: true });
    const undoButton = make("button", { type: "button", class: "button", disabled: true, "aria-keyshortcuts": "U", on: { click: undo } }, "Undo last");
    bar = { meter, text, alarm, undo: undoButton };
    document.body.classList.add("reviewing");
    document.body.append(make("div", { class: "review-bar", role: "region", "aria-label": "Progress of the review" },
      make("div", { class: "wrap" }, make("span", { class: "meter", vars: { "--c": "var(--accent)" } }, meter), text, alarm, make("span", { class: "fill" }),
        make("span", { class: "said keys-hint" }, "A accept · R reject · L other label · X no class · U undo"), undoButton)));
    document.addEventListener("keydown", onKey);
    count_();
    try {
      const places = rows.row ? new Map(rows.row.map((row, place) => [row, place])) : null;
      for (const state of await ask("/decisions")) {
        const row = places ? places.get(state.row) : state.row;
        if (row !== undefined) states.set(row, state);
      }
      [...states.keys()].forEach(show);
    } catch (error) {
      complain(`Earlier decisions can’t be shown: ${error.message}`);
    }
  }

  return {
    actions,
    start,
    isDone: (row) => states.has(row),
    /** What was decided that a row is. */
    outcome: (row) => outcome(states.get(row)),
    largePicture: (row) => `/picture/${runRow(row)}?token=${encodeURIComponent(facts.token)}`,
  };
})();
