// All details of one sample.

const detail = (() => {
  const dialog = find("detail");
  dialog.tabIndex = -1;
  let shown = { list: [], place: 0, back: null };

  /** The neighbors as pictures, with labels as captions if requested; in words if there are no pictures. */
  function neighborList(row, { captions = true, ids = false } = {}) {
    const near = rows.near[row].filter((other) => other >= 0);
    if (near.every((other) => pictureOf(other) === null)) return near.length ? neighborWords(row, near, ids) : null;
    return make("ul", { class: "near" }, ...near.map((other) => {
      const says = `${rows.id[other]}: ${describe(other)}`;
      return make("li", { class: looks(other) === looks(row) ? "agrees" : "", title: says },
        picture(other, "") ?? make("span", { class: "blank" }), captions ? label(verdict(other) === "ood" ? "none" : proposed(other)) : null, make("span", { class: "off-screen" }, `, neighbor ${says}`));
    }));
  }

  /** The neighbors grouped by the class that they look like. */
  function neighborWords(row, near, ids) {
    const kinds = new Map();
    for (const other of near) kinds.set(looks(other), [...(kinds.get(looks(other)) ?? []), rows.id[other]]);
    return make("ul", { class: "near words" }, ...[...kinds].map(([name, names]) =>
      make("li", { class: name === looks(row) ? "agrees" : "", title: `neighbors ${names.join(", ")}` },
        `${names.length} × `, label(name), ids ? (facts.shown.length
          ? make("ul", { class: "told" }, ...near.filter((other) => looks(other) === name).map((other) => make("li", { title: rows.id[other] }, gist(other))))
          : make("span", { class: "id" }, names.join(", "))) : null)));
  }

  /** The number of neighbors that agree with the verdict, in words. */
  function support(row) {
    const near = rows.near[row].filter((other) => other >= 0);
    const agree = near.filter((other) => looks(other) === looks(row)).length;
    return near.length ? `${agree} of ${near.length} look like ${looks(row)}` : "none in this report";
  }

  function render() {
    const row = shown.list[shown.place];
    const name = verdict(row);
    const facing = make("dl");
    const say = (term, value) => facing.append(make("div", {}, make("dt", {}, term), make("dd", {}, value)));
    say("Verdict", verdictMark(name));
    say("Given label", label(given(row)));
    say(name === "ood" ? "Nearest class" : "Looks like", label(proposed(row)));
    if (confidence(row) !== null) say("Confidence", confidence(row));
    if (rows.quality[row] !== null) say("Label quality", score(rows.quality[row], 3));
    if (rows.ood[row] !== null) say("OOD score", score(rows.ood[row], 3));
    if (rows.detector_score && rows.detector_score[row] !== null) say("Detector's score", score(rows.detector_score[row], 3));
    say("In the clean set", rows.selected[row] ? "yes" : "no");
    say("Nearest neighbors", support(row));
    if (rows.issues[row].length) say("As a photo", issues(row));
    const step = (by, text, key) =>
      make("button", { type: "button", class: "button", disabled: !shown.list[shown.place + by] && shown.list[shown.place + by] !== 0, "data-focus": key, "aria-keyshortcuts": key, on: { click: () => move(by) } }, text);
    const focused = document.activeElement?.dataset.focus;
    const image = picture(row, `${rows.id[row]}: ${describe(row)}`);
    if (image && reviewing && facts.large_pictures) {
      // Fall back to the small picture if the server has no large one.
      image.addEventListener("error", () => { image.src = pictureOf(row); }, { once: true });
      image.src = review.largePicture(row);
    }
    dialog.replaceChildren(
      make("div", { class: hasPictures ? "detail" : "detail alone" },
        hasPictures ? make("div", { class: "big" }, image ?? make("p", { class: "said" }, "No picture")) : null,
        make("div", { class: "text" },
          make("div", { class: "head" },
            make("div", {}, make("h2", { id: "detail-title", class: "id" }, rows.id[row]), change(row)),
            make("button", { type: "button", class: "button", "aria-label": "Close", on: { click: () => dialog.close() } }, "✕")),
          reviewing ? review.actions(row) : null,
          reviewing ? review.noteField(row) : null,
          facts.shown.length ? cells(row) : null,
          facing,
          neighborList(row, { ids: true }),
          make("div", { class: "steps-between" }, step(-1, "← Previous", "ArrowLeft"), step(1, "Next →", "ArrowRight"),
            reviewing ? make("button", { type: "button", class: "button", "aria-keyshortcuts": "N", "data-focus": "next", on: { click: () => review.goOn(row) } }, "Next undecided") : null,
            make("span", { class: "said" }, `${count(shown.place + 1)} of ${count(shown.list.length)}`)))),
    );
    // The focused element was replaced: restore the focus, so that keys still reach the dialog.
    if (dialog.open) (dialog.querySelector(`[data-focus="${focused}"]:not([disabled])`) ?? dialog).focus();
  }

  function move(by) {
    const place = shown.place + by;
    if (place < 0 || place >= shown.list.length) return;
    shown.place = place;
    render();
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("select, input, textarea")) return;
    if (event.key === "ArrowLeft") move(-1);
    else if (event.key === "ArrowRight") move(1);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => shown.back?.focus());

  return {
    neighborList,
    support,
    render,
    move,
    isOpen: () => dialog.open,
    row: () => shown.list[shown.place],
    /** Show the next row in the list for which `wanted` is true, wrapping around at the end. */
    turnToNext(wanted) {
      const { list, place } = shown;
      const found = [...list.keys()].map((step) => (place + 1 + step) % list.length).find((other) => wanted(list[other]));
      if (found !== undefined) move(found - place);
    },
    /** Show `row`, if it is in the list. */
    turnTo: (row) => { if (shown.list.includes(row)) move(shown.list.indexOf(row) - shown.place); },
    /** Open at `list[place]`; closing restores the focus. */
    open(list, place) {
      shown = { list, place, back: document.activeElement };
      render();
      dialog.showModal();
    },
  };
})();
