// The matrix of given and proposed labels, and the verdicts of each class.

const MOST_CLASSES = 12;

function startClasses(root, galleries) {
  const all = [...facts.classes.keys()];
  const chosen = facts.matrix;

  const numbers_ = new Map(facts.pairs.map(([from, to, number]) => [`${from} ${to}`, number]));
  const most = (isSame) => facts.pairs.reduce((least, [from, to, number]) => ((from === to) === isSame ? Math.max(least, number) : least), 1);
  const [same, off] = [most(true), most(false)];
  const heat = (number, most) => ({ "--heat": `${Math.round(14 + 34 * (number / most))}%` });
  const few = all.length > chosen.length ? ` Shown are the ${chosen.length} of ${count(all.length)} classes with the most labels changed.` : "";
  const tall = chosen.some((place) => className(place).length > 3);
  const head = make("tr", {}, make("td", { class: "corner" }), ...chosen.map((place) => make("th", { scope: "col", title: className(place) }, make("span", {}, className(place)))));
  const body = chosen.map((from) => make("tr", {},
    make("th", { scope: "row", title: className(from) }, label(className(from))),
    ...chosen.map((to) => {
      const number = numbers_.get(`${from} ${to}`) ?? 0;
      if (!number) return make("td", {}, make("span", { "aria-label": "none" }, "·"));
      if (from === to) return make("td", { class: "same", vars: heat(number, same) }, count(number));
      const words = `${count(number)} given ${className(from)} look like ${className(to)}; show them`;
      return make("td", {}, make("button", { type: "button", title: words, "aria-label": words, vars: heat(number, off), on: { click: () => {
        galleries.relabel?.set({ given: String(from), proposed: String(to) });
        find("mislabels")?.scrollIntoView();
      } } }, count(number)));
    })));
  const matrix = make("table", { class: chosen.length <= 10 && !tall ? "matrix roomy" : "matrix", "aria-labelledby": "matrix-about" },
    make("thead", { class: tall ? "tall" : "" }, head), make("tbody", {}, ...body));
  root.append(make("div", {},
    make("p", { class: "said", id: "matrix-about" }, `Rows: given label. Columns: proposed label, of all ${facts.things} kept or relabeled.${few}`),
    make("div", { class: "scroll" }, matrix)));

  const total = (place) => facts.by_class[place].reduce((sum, number) => sum + number, 0);
  const bad = (place) => (facts.by_class[place][code("relabel")] + facts.by_class[place][code("ood")]) / Math.max(1, total(place));
  const ranked = all.filter(total).sort((a, b) => bad(b) - bad(a));
  const list = make("ul", { class: "by-class" });
  const line = (place) => make("li", {},
    make("div", { class: "row" }, label(className(place)), make("span", {}, `${percent(bad(place), 0)} of ${count(total(place))} flagged`)),
    make("div", { class: "bars", role: "img", "aria-label": facts.verdicts.map((name, number) => `${name} ${facts.by_class[place][number]}`).join(", ") },
      ...facts.verdicts.map((name, number) => [name, facts.by_class[place][number]]).filter(([, number]) => number)
        .map(([name, number]) => make("span", { title: `${count(number)} ${name}`, vars: { "--c": `var(--${name})`, "flex-grow": number } }))));
  const more = make("button", { type: "button", class: "button", hidden: ranked.length <= MOST_CLASSES, on: { click: () => { list.append(...ranked.slice(MOST_CLASSES).map(line)); more.hidden = true; } } }, `Show all ${count(ranked.length)}`);
  list.append(...ranked.slice(0, MOST_CLASSES).map(line));
  const keys = facts.verdicts.filter((name) => facts.counts[name]).map(verdictMark);
  root.append(make("div", {}, make("p", { class: "said" }, "By given label; flagged means relabel or ood."), make("div", { class: "keys" }, ...keys), list, make("div", { class: "more" }, more)));
}
