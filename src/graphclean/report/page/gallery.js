// Galleries of suspects as cards, by default the most confident of each kind first.

const LEAST = 8;
const MORE = 48;
const shortNames = facts.classes.every((name) => name.length <= 4);

/** Interleave the kinds (given → proposed) in round-robin order, so that a first look shows all of them. */
function varied(list) {
  const seen = new Map();
  const turn = new Map();
  for (const row of list) {
    const kind = verdict(row) === "relabel" ? `${rows.given[row]} ${rows.proposed[row]}` : rows.proposed[row];
    turn.set(row, seen.get(kind) ?? 0);
    seen.set(kind, turn.get(row) + 1);
  }
  return list.sort((a, b) => turn.get(a) - turn.get(b));
}

/** Minimum confidences to filter cards by, in thousandths. */
const CONFIDENCES = [990, 950, 900, 800, 700];

/** Treat a click anywhere on a card as one on its button, except on other controls or when text is selected. */
function openCard(event) {
  if (event.target.closest("button, select, .actions") || !getSelection().isCollapsed) return;
  const button = event.currentTarget.querySelector(".open");
  button.focus();
  button.click();
}

function makeCard(row, open) {
  const image = picture(row, "");
  const captions = shortNames && verdict(row) !== "ood";
  const near = detail.neighborList(row, { captions });
  const told = !image && gist(row, 600) !== rows.id[row];
  const words = [`${rows.id[row]}: ${describe(row)}`, told ? gist(row) : null, confidence(row)].filter(Boolean).join(", ");
  const button = make("button", { type: "button", class: "open", tabindex: "-1", "aria-label": words, "data-row": row, on: { click: open } },
    image ?? make("span", { class: told ? "blank told" : "blank id" }, gist(row, 600)));
  return make("li", {},
    make("article", { class: reviewing && review.isDone(row) ? "card done" : "card", "data-row": row, on: { click: openCard } },
      button,
      make("div", { class: "body" },
        change(row),
        rows.issues[row].length ? make("p", { class: "said" }, issues(row)) : null,
        confidence(row) === null ? null : make("div", { class: "sure", vars: { "--c": `var(--${verdict(row)})`, "--w": `${rows.confidence[row] / 10}%` } },
          make("span", { class: "meter" }, make("i")), make("span", {}, confidence(row))),
        near,
        captions || near?.matches(".words") ? null : make("p", { class: "said" }, detail.support(row)),
        facts.shown.length > (told ? 1 : 0) ? cells(row, told) : null,
        image || told ? make("p", { class: "id", title: rows.id[row] }, rows.id[row]) : null,
        reviewing ? review.actions(row) : null)));
}

/** Focus a card's button, and scroll the whole card into view. */
function goTo(button) {
  button.focus();
  button.closest("li").scrollIntoView({ block: "nearest" });
}

function startGallery(root) {
  const name = root.dataset.gallery;
  const ofPhotos = name === "photos";
  const all = ofPhotos ? rowsWithIssues() : rowsWith(name);
  const total = ofPhotos ? facts.with_issues : facts.counts[name];
  const state = { order: ofPhotos ? "place" : "varied", given: "", proposed: "", issue: "", reviewed: "", confidence: "", shown: 0 };
  let list = [];
  const cards = make("ul", { class: "cards" });
  const said = make("p", { class: "said", role: "status" });
  const more = make("button", { type: "button", class: "button", on: { click: () => show(state.shown + MORE) } }, "Show more");
  const left = total - all.length;
  const which = name === "uncertain" ? "least likely right" : ofPhotos ? "most serious" : "most confident";
  const partly = left > 0 ? `This page holds ${count(all.length)} of ${count(total)}, the ${which} among them. All of them are in verdicts.parquet.` : null;
  const others = left > 0 && reviewing && !ofPhotos ? ` “${name === "uncertain" ? "Keep labels of" : "Accept"} all” covers what this page holds. The other ${count(left)} keep their verdict: graphclean apply carries it out, with --min-confidence 0.9 only where it is that sure.` : "";

  const used = (column) => {
    const there = [...new Set(all.map((row) => rows[column][row]))].sort((a, b) => a - b);
    return [["", "any"], ...there.map((place) => [String(place), className(place)])];
  };
  // Uncertain samples start with the labels least likely to be right.
  const first = name === "uncertain" ? 1 : -1;
  const order = choice("Order", [["varied", "one of each kind first"], ["sure", "most likely right first"], ["unsure", "least likely right first"], ["place", "as in the data"]], (value) => set({ order: value }));
  const from = choice("Given", used("given"), (value) => set({ given: value }));
  const to = choice(name === "ood" ? "Nearest" : "Looks like", used("proposed"), (value) => set({ proposed: value }));

  const kinds = facts.issues.filter((kind) => facts.issue_counts[kind]).map((kind) => [String(facts.issues.indexOf(kind)), kind]);
  const issue = choice("Issue", [["", "any"], ...kinds], (value) => set({ issue: value }));
  const reached = ofPhotos ? [] : CONFIDENCES.filter((least) => all.some((row) => rows.confidence[row] >= least));
  const least = choice("Confidence", [["", "any"], ...reached.map((value) => [String(value), `${value / 10} % or more`])], (value) => set({ confidence: value }));
  const seen = choice("Reviewed", [["", "any"], ["no", "not yet"], ["yes", "already"], ["note", "with a note"]], (value) => set({ reviewed: value }));
  const isReviewed = { "": () => true, no: (row) => !review.isDone(row), yes: (row) => review.isDone(row), note: (row) => review.noteOf(row) !== "" };
  const accept = make("button", { type: "button", class: "button", title: "All that pass the filter, including those behind “Show more”; U undoes it in one step", on: { click: () => review.acceptAll(list) } });

  function set(change) {
    Object.assign(state, change);
    from.select.value = state.given;
    to.select.value = state.proposed;
    list = all.filter((row) =>
      isReviewed[state.reviewed](row) &&
      (state.confidence === "" || rows.confidence[row] >= Number(state.confidence)) &&
      (state.issue === "" || rows.issues[row].includes(Number(state.issue))) &&
      (state.given === "" || rows.given[row] === Number(state.given)) &&
      (state.proposed === "" || rows.proposed[row] === Number(state.proposed)));
    if (state.order !== "place") {
      const sign = { sure: -1, unsure: 1, varied: first }[state.order];
      list.sort((a, b) => sign * (rows.confidence[a] - rows.confidence[b]) || a - b);
      if (state.order === "varied") varied(list);
    }
    cards.replaceChildren();
    if (reviewing) recount();
    show(2 * across() < LEAST ? LEAST : 2 * across());
  }

  /** Update the number of samples that the button would accept. */
  function recount() {
    const waiting = review.waiting(list).length;
    accept.textContent = `${name === "uncertain" ? "Keep labels of" : "Accept"} all ${count(waiting)}${left > 0 ? " on this page" : ""}`;
    accept.disabled = waiting === 0;
  }

  const across = () => getComputedStyle(cards).gridTemplateColumns.split(" ").length;
  function show(wanted) {
    const from_ = cards.children.length;
    state.shown = Math.min(wanted, list.length);
    for (let place = from_; place < state.shown; place++) cards.append(makeCard(list[place], () => detail.open(list, place)));
    if (from_ === 0) focusable(0);
    more.hidden = state.shown >= list.length;
    said.textContent = list.length ? `${count(state.shown)} of ${count(list.length)} shown` : "None.";
  }

  // One card is a tab stop; arrow keys move to the others.
  const buttons = () => [...cards.querySelectorAll(".open")];
  const focusable = (place) => buttons().forEach((button, number) => button.setAttribute("tabindex", number === place ? "0" : "-1"));
  cards.addEventListener("focusin", (event) => {
    const button = event.target.closest("li")?.querySelector(".open");
    if (button) focusable(buttons().indexOf(button));
  });
  cards.addEventListener("keydown", (event) => {
    if (!event.target.matches(".open")) return;
    const there = buttons();
    const place = there.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across(), ArrowUp: -across(), Home: -place, End: there.length - 1 - place }[event.key];
    if (step === undefined || !there[place + step]) return;
    goTo(there[place + step]);
    event.preventDefault();
  });

  fill(root, {}, [make("div", { class: "controls" }, ofPhotos ? issue.label : null, from.label, to.label, reached.length ? least.label : null, ofPhotos ? null : order.label, reviewing ? seen.label : null, make("span", { class: "fill" }), said, reviewing && !ofPhotos ? accept : null),
    partly === null ? null : make("p", { class: "said partly" }, partly + others),
    cards, make("div", { class: "more" }, more)]);
  set({});
  return { set, recount };
}
