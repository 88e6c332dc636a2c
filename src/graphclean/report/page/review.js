// Decisions: sent to the server as they are made, and shown wherever a sample appears.

const review = (() => {
  /** The current decision of each row that has one, latest last. */
  const states = new Map();
  /** The notes by row. */
  const notes = new Map();
  /** Rows with a pending request, negative for notes, so that a key pressed twice makes one decision. */
  const sending = new Set();
  /** The row whose label list was opened by key: a choice then moves on to the next, as other keys do. */
  let asked = null;
  const places = rows.row ? new Map(rows.row.map((row, place) => [row, place])) : null;
  const runRow = (row) => (rows.row ? rows.row[row] : row);
  /** Position in the page of a row of the run; undefined if omitted. */
  const placeOf = (row) => (places ? places.get(row) : row);
  const isSuspect = (row) => ["relabel", "ood", "uncertain"].includes(verdict(row));
  /** The suspects on the page, which may be fewer than in the run. */
  const suspects = rows.id.reduce((sum, _, row) => sum + isSuspect(row), 0);
  const inRun = ["relabel", "ood", "uncertain"].reduce((sum, name) => sum + facts.counts[name], 0);
  let bar = null;

  async function ask(path, options = {}) {
    const answer = await fetch(path, { ...options, headers: { "X-Token": facts.token, "Content-Type": "application/json" } });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  /** Send one decision on several rows; returns whether it was saved. */
  async function send(wanted, kind, { label: name = null, note = null } = {}) {
    const mark_ = (row) => (kind === "note" ? -1 - row : row);
    const free = wanted.filter((row) => !sending.has(mark_(row)));
    if (!free.length) return false;
    free.forEach((row) => sending.add(mark_(row)));
    try {
      const held = await ask("/decide", { method: "POST", body: JSON.stringify({ rows: free.map(runRow), kind, label: name, note }) });
      for (const [place, row] of free.entries()) {
        if (kind === "note") {
          if (note.trim()) notes.set(row, note.trim());
          else notes.delete(row);
        } else {
          states.delete(row);
          if (held[place]) states.set(row, held[place]);
        }
      }
      complain("");
      show(free);
      return true;
    } catch (error) {
      complain(error instanceof TypeError ? "Not saved: the server does not answer. Run graphclean review again and open the address that it prints; all that was saved is kept." : `Not saved: ${error.message}`);
      return false;
    } finally {
      free.forEach((row) => sending.delete(mark_(row)));
    }
  }

  /** Show an error in the bar and in an open dialog, which hides the bar, also from screen readers. */
  function complain(text) {
    bar.alarm.textContent = text;
    bar.alarm.hidden = !text;
    const open = detail.isOpen() ? find("detail").querySelector(".actions") : null;
    open?.querySelector("[role=alert]")?.remove();
    if (text) open?.append(make("strong", { role: "alert" }, text));
  }

  /** Update every place that shows one of the changed rows. */
  function show(changed) {
    const wanted = new Set(changed);
    for (const place of document.querySelectorAll("[data-actions]")) {
      const row = Number(place.dataset.actions);
      if (!wanted.has(row)) continue;
      const focused = place.contains(document.activeElement) ? document.activeElement.dataset.kind : undefined;
      const fresh = actions(row);
      place.replaceWith(fresh);
      if (focused) (fresh.querySelector(`[data-kind="${focused}"]`) ?? fresh.querySelector("button"))?.focus();
    }
    for (const card of document.querySelectorAll(".card")) card.classList.toggle("done", states.has(Number(card.dataset.row)));
    for (const gallery of Object.values(galleries)) gallery.recount();
    table.paint();
    count_();
  }

  function count_() {
    const done = [...states.keys()].filter(isSuspect).length;
    bar.text.textContent = suspects < inRun
      ? `${count(done)} of ${count(suspects)} suspects on this page reviewed (${count(inRun)} in the run)`
      : `${count(done)} of ${count(suspects)} suspects reviewed`;
    bar.meter.style.setProperty("--w", `${(100 * done) / Math.max(1, suspects)}%`);
    bar.undo.disabled = states.size === 0;
    bar.next.disabled = done === suspects;
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

  /** The buttons of a row, or the decision on it. */
  function actions(row) {
    const state = states.get(row);
    const box = make("div", { class: "actions", "data-actions": row });
    if (state) {
      box.append(make("p", { class: "outcome" }, "✓ ", label(outcome(state))),
        make("button", { type: "button", class: "button", "data-kind": "undo", on: { click: () => send([row], "undo") } }, "Undo"),
        written(row) ?? "");
      return box;
    }
    const [yes, no] = words[verdict(row)];
    const button = (kind, text, key, title) => make("button", { type: "button", class: "button", "data-kind": kind, "aria-keyshortcuts": key, title, on: { click: () => send([row], kind) } }, text);
    if (yes) box.append(button("accept", yes, "A", `it is ${verdict(row) === "uncertain" || verdict(row) === "keep" ? given(row) : looks(row)} (A)`));
    if (no) box.append(button("reject", no, "R", `it is ${given(row)}, as labeled (R)`));
    // Fill in the classes on demand: a thousand of them on every card would be slow.
    const fill = () => {
      if (other.length === 2) other.append(...facts.classes.map((name, place) => make("option", { value: place }, name)));
    };
    const choose = async () => {
      await (other.value === "none" ? send([row], "remove") : send([row], "label", { label: facts.classes[Number(other.value)] }));
      if (asked === row && states.has(row)) goOn(row);
      asked = null;
    };
    // On a closed list, an arrow or letter key would already choose, and so decide: it opens the list instead.
    const openFirst = (event) => {
      if (!other.showPicker || event.ctrlKey || event.metaKey || event.altKey) return;
      if (!event.key.startsWith("Arrow") && event.key.length > 1) return;
      event.preventDefault();
      other.showPicker();
    };
    const other = make("select", { "aria-label": "Another label", "aria-keyshortcuts": "L", "data-kind": "label", on: { focus: fill, pointerdown: fill, keydown: openFirst, change: choose } },
    make("option", { value: "", disabled: true, selected: true }, "Other…"), make("option", { value: "none" }, "no class"));
    box.append(other, written(row) ?? "");
    return box;
  }

  const written = (row) => (notes.has(row) ? make("p", { class: "note" }, notes.get(row)) : null);

  /** A field for a note, saved when it loses the focus or by Enter. */
  function noteField(row) {
    const field = make("textarea", { rows: 2, maxlength: 1000, placeholder: "Note (T)", "aria-label": "Note", "aria-keyshortcuts": "T", "data-focus": "note" });
    field.value = notes.get(row) ?? "";
    const save = () => {
      if (field.value.trim() !== (notes.get(row) ?? "")) send([row], "note", { note: field.value });
    };
    field.addEventListener("change", save);
    field.addEventListener("keydown", (event) => {
      if (!(event.key === "Enter" && !event.shiftKey) && event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      find("detail").focus();
    });
    return field;
  }

  /** Undo the last step, of one or more decisions; returns the last row concerned. */
  async function undo() {
    const last = [...states.values()].at(-1);
    if (last === undefined) return undefined;
    const step = [...states].filter(([, state]) => state.time === last.time).map(([row]) => row);
    await send(step, "undo");
    return step.at(-1);
  }

  /** The rows that can be accepted and are undecided. */
  const waiting = (list) => list.filter((row) => !states.has(row) && words[verdict(row)][0]);

  async function acceptAll(list) {
    const wanted = waiting(list);
    if (await send(wanted, "accept")) bar.text.textContent = `${count(wanted.length)} accepted in one step; U undoes it`;
  }

  /** Move on to the next undecided row: in the dialog, or among the cards after that of `row`, wrapping around. */
  function goOn(row) {
    if (detail.isOpen()) return detail.turnToNext((other) => !states.has(other));
    const card = document.querySelector(`.card[data-row="${row}"]`);
    const sections = [...document.querySelectorAll("[data-gallery]")];
    const from = card ? sections.indexOf(card.closest("[data-gallery]")) : 0;
    let next = card ? findWaiting(sections[from], card) : undefined;
    for (const section of [...sections.slice(card ? from + 1 : 0), ...sections]) next ??= findWaiting(section);
    if (next) goTo(next);
  }

  /** The first undecided card of a gallery, after `card` if given, showing more cards until there is one. */
  function findWaiting(gallery, card = null) {
    for (;;) {
      const after = [...gallery.querySelectorAll(".card:not(.done) .open")].find((open) => card === null || card.compareDocumentPosition(open) === Node.DOCUMENT_POSITION_FOLLOWING);
      const more = gallery.querySelector(".more button:not([hidden])");
      if (after || !more) return after;
      more.click();
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
    } else if (key === "n" || (row === null && ["a", "r", "l", "x"].includes(key))) {
      // If no card is chosen, a key only moves to one.
      goOn(row);
    } else if (row === null) return;
    else if (key === "t") {
      if (!detail.isOpen()) card.querySelector(".open").click();
      find("detail").querySelector("textarea").focus();
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
      await send([row], kind);
      if (!states.has(row)) return;
      goOn(row);
    }
    event.preventDefault();
  }

  /** The row of the last focused card. */
  let last = null;
  document.addEventListener("focusin", (event) => {
    const card = event.target.closest(".card");
    if (card) last = Number(card.dataset.row);
  });

  async function start() {
    const meter = make("i");
    const text = make("span", { role: "status" });
    const alarm = make("strong", { role: "alert", hidden: true });
    const undoButton = make("button", { type: "button", class: "button", disabled: true, "aria-keyshortcuts": "U", on: { click: undo } }, "Undo last");
    const next = make("button", { type: "button", class: "button", title: "N", "aria-keyshortcuts": "N", on: { click: () => goOn(last) } }, "Next undecided");
    bar = { meter, text, alarm, next, undo: undoButton };
    document.body.classList.add("reviewing");
    document.body.append(make("div", { class: "review-bar", role: "region", "aria-label": "Progress of the review" },
      make("div", { class: "wrap" }, make("span", { class: "meter", vars: { "--c": "var(--accent)" } }, meter), text, alarm, make("span", { class: "fill" }),
        make("span", { class: "said keys-hint" }, "A accept · R reject · L label · X no class · T note · U undo"), next, undoButton)));
    document.addEventListener("keydown", onKey);
    count_();
    try {
      const earlier = await ask("/decisions");
      for (const state of earlier.decisions) if (placeOf(state.row) !== undefined) states.set(placeOf(state.row), state);
      for (const [row, note] of Object.entries(earlier.notes)) if (placeOf(Number(row)) !== undefined) notes.set(placeOf(Number(row)), note);
      show([...states.keys(), ...notes.keys()]);
    } catch (error) {
      complain(`Earlier decisions can’t be shown: ${error.message}`);
    }
  }

  return {
    actions,
    start,
    noteField,
    acceptAll,
    waiting,
    goOn,
    isDone: (row) => states.has(row),
    noteOf: (row) => notes.get(row) ?? "",
    /** The label decided for a row. */
    outcome: (row) => outcome(states.get(row)),
    largePicture: (row) => `/picture/${runRow(row)}?token=${encodeURIComponent(facts.token)}`,
  };
})();
