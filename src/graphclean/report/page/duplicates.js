// Groups of duplicates as cards, those with conflicting labels first.

const MEMBERS = 10;

/** The labels of a group with their counts. */
function labelsOf(group) {
  const counts = new Map();
  for (const row of group) counts.set(rows.given[row], (counts.get(rows.given[row]) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function makeGroup(group) {
  const labels = labelsOf(group);
  const conflict = labels.filter(([place]) => place >= 0).length > 1;
  const members = group.slice(0, MEMBERS).map((row, place) => {
    const says = `${rows.id[row]}: ${describe(row)}`;
    const image = picture(row, "");
    return make("li", { title: says },
      make("button", { type: "button", "aria-label": says, "data-row": row, on: { click: () => detail.open(group, place) } },
        image ?? make("span", { class: "id" }, rows.id[row])),
      make("span", {}, mark(verdictLook(verdict(row))), label(given(row))));
  });
  const rest = group.length - members.length;
  return make("li", {},
    make("article", { class: conflict ? "card group conflict" : "card group" },
      make("div", { class: "body" },
        make("p", { class: "change" }, ...labels.map(([place, many], at) => make("span", {}, at ? "or " : "", label(className(place)), many > 1 ? ` × ${count(many)}` : ""))),
        make("p", { class: "said" }, `${count(group.length)} ${facts.things}${conflict ? ", conflicting labels" : ""}`),
        make("ul", { class: image(group) ? "members" : "members words" }, ...members),
        rest > 0 ? make("p", { class: "said" }, `and ${count(rest)} more`) : null)));
}

const image = (group) => group.some((row) => pictureOf(row) !== null);

function startDuplicates(root) {
  const cards = make("ul", { class: "cards groups" });
  const said = make("p", { class: "said", role: "status" });
  const more = make("button", { type: "button", class: "button", on: { click: () => show(MORE) } }, "Show more");
  let shown = 0;
  function show(many) {
    const next = facts.duplicates.slice(shown, shown + many);
    cards.append(...next.map(makeGroup));
    shown += next.length;
    more.hidden = shown >= facts.duplicates.length;
    const held = facts.groups > facts.duplicates.length ? `. This page holds ${count(facts.duplicates.length)} of ${count(facts.groups)} groups; all of them are in verdicts.parquet (column duplicate_group).` : "";
    said.textContent = `${count(shown)} of ${count(facts.duplicates.length)} groups shown${held}`;
  }
  root.append(make("div", { class: "controls" }, make("span", { class: "fill" }), said), cards, make("div", { class: "more" }, more));
  show(LEAST);
}
