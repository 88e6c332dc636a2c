// The effect of another threshold.

function startBorder(root) {
  const border = facts.border;
  const [low, high] = border.edges;
  const [width, band, gap] = [560, 92, 22];
  const height = 2 * band + gap;
  const x = (value) => ((value - low) / Math.max(high - low, 1e-9)) * width;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height + 34}`, "aria-hidden": "true" });
  const bars = [];
  // Two rows, each scaled to its own tallest bar: there may be few OOD samples and many of known classes.
  for (const [place, [kind, title]] of [["known", "probably of a known class"], ["ood", "probably OOD"]].entries()) {
    const heights = border.bins[kind];
    const [foot, most, wide] = [band + place * (band + gap), Math.max(1, ...heights), width / heights.length];
    heights.forEach((number, bin) => {
      const tall = (number / most) * (band - 18);
      if (!tall) return;
      const bar = draw("rect", { class: kind, x: bin * wide + 0.75, y: foot - tall, width: wide - 1.5, height: tall });
      bars.push([bar, low + ((bin + 0.5) * (high - low)) / heights.length]);
      picture.append(bar);
    });
    const total = heights.reduce((sum, number) => sum + number, 0);
    picture.append(draw("line", { class: "foot", x1: 0, x2: width, y1: foot, y2: foot }), draw("text", { x: 0, y: foot - band + 12 }, `${count(total)} ${title}`));
  }
  // Through both rows, but not through the text above them.
  const down = (value) => [0, band + gap].map((top) => `M${x(value)} ${top + 16}V${top + band}`).join("");
  const was = draw("path", { class: "line-was", d: down(border.threshold) });
  const line = draw("path", { class: "line-at" });
  picture.append(was, line, draw("text", { x: 0, y: height + 22 }, `like a class, detector's score ${low.toFixed(2).replace("-", "−")}`),
    draw("text", { x: width, y: height + 22, "text-anchor": "end" }, `unlike any class, ${high.toFixed(2)}`));
  const number = make("span", { class: "big-number" });
  const said = make("span", { class: "said" });
  const [good, strange] = [make("b"), make("b")];
  const slider = make("input", { type: "range", min: 0, max: border.borders.length - 1, step: 1, "aria-label": "Another threshold", on: { input: () => show(Number(slider.value)) } });
  const back = make("button", { type: "button", class: "button", on: { click: () => show(border.chosen) } }, `Back to ${border.threshold.toFixed(3)}`);
  const how = make("pre");

  function show(place) {
    const threshold = border.borders[place];
    slider.value = String(place);
    slider.setAttribute("aria-valuetext", `threshold ${threshold.toFixed(3)}, ${count(border.rejected[place])} rejected`);
    number.textContent = `threshold ${threshold.toFixed(3).replace("-", "−")}`;
    said.textContent = `${count(border.rejected[place])} of the ${count(border.total)} ${facts.things} would be rejected${place === border.chosen ? "; this is the threshold in use." : "."}`;
    good.textContent = percent(border.known[place]);
    if (border.strange) strange.textContent = percent(border.caught[place] / border.strange);
    line.setAttribute("d", down(threshold));
    for (const [bar, middle] of bars) bar.classList.toggle("rejected", middle > threshold);
    back.hidden = place === border.chosen;
    how.hidden = back.hidden || !facts.again;
    how.textContent = `${facts.again} --set ood.threshold=${threshold.toFixed(3)}`;
  }
  root.append(make("div", { class: "border" },
    make("div", {}, picture, slider),
    make("output", {}, number, said,
      make("span", { class: "pair" }, make("span", {}, good, "of good inputs lost, by estimate"), border.strange ? make("span", {}, strange, `of the ${count(border.strange)} probable OOD samples rejected`) : make("span", {}, make("b", {}, "unknown"), "OOD inputs rejected: the training set has none to measure it")),
      make("span", {}, back), how)));
  show(border.chosen);
}
