// Training curves by epoch.

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [360, 190, 40, 22];

function niceTicks(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low || 1) / 3));
  const fitting = [1, 2, 5, 10].map((factor) => factor * step).find((value) => (high - low) / value <= 4) ?? step * 10;
  const ticks = [];
  for (let tick = Math.ceil(low / fitting) * fitting; tick <= high + fitting / 1e6; tick += fitting) ticks.push(tick);
  return ticks;
}

/**
 * @param {string} title
 * @param {{name: string, color: string, dash: string, values: (number|null)[]}[]} series
 * @param {(value: number) => string} show
 */
function lineChart(title, series, show) {
  const epochs = facts.curves.map((line) => line.epoch);
  const values = series.flatMap((one) => one.values).filter((value) => value !== null && value !== undefined);
  let [low, high] = [Math.min(0, ...values), Math.max(...values)];
  if (high - low < 1e-9) high = low + 1;
  const x = (place) => LEFT + (epochs.length > 1 ? place / (epochs.length - 1) : 0.5) * (WIDTH - LEFT - 8);
  const y = (value) => 8 + (1 - (value - low) / (high - low)) * (HEIGHT - BOTTOM - 8);
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${series.map((one) => `${one.name} ends at ${show(one.values.at(-1) ?? 0)}`).join(", ")}` });
  const warm = facts.curves.filter((line) => line.warmup).length;
  if (warm) picture.append(draw("rect", { class: "warm", x: LEFT, y: 8, width: x(Math.min(warm, epochs.length - 1)) - LEFT, height: HEIGHT - BOTTOM - 8 }));
  for (const tick of niceTicks(low, high)) {
    picture.append(draw("line", { class: "grid-line", x1: LEFT, x2: WIDTH - 8, y1: y(tick), y2: y(tick) }),
      draw("text", { x: LEFT - 7, y: y(tick) + 4, "text-anchor": "end" }, show(tick)));
  }
  picture.append(draw("text", { x: LEFT, y: HEIGHT - 4 }, `epoch ${epochs[0]}`), draw("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, String(epochs.at(-1))));
  for (const one of series) {
    const line = one.values.map((value, place) => (value === null || value === undefined ? "" : `${place ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
    picture.append(draw("path", { d: line.replace(/^L/, "M"), "stroke-dasharray": one.dash, vars: { "--c": `var(${one.color})` } }));
  }
  const cursor = draw("line", { class: "cursor", y1: 8, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  picture.append(cursor);
  const said = make("p", { class: "said" });
  const rest = () => { cursor.setAttribute("visibility", "hidden"); said.textContent = `At the end: ${tell(epochs.length - 1)}`; };
  const tell = (place) => series.map((one) => `${series.length > 1 ? `${one.name} ` : ""}${show(one.values[place] ?? 0)}`).join(", ");
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const inside = ((event.clientX - box.left) / box.width) * WIDTH;
    const place = Math.max(0, Math.min(epochs.length - 1, Math.round(((inside - LEFT) / (WIDTH - LEFT - 8)) * (epochs.length - 1))));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(place));
    cursor.setAttribute("visibility", "visible");
    said.textContent = `Epoch ${epochs[place]}: ${tell(place)}`;
  });
  picture.addEventListener("pointerleave", rest);
  rest();
  const keys = series.length < 2 ? null : make("div", { class: "keys" }, ...series.map((one) =>
    make("span", { vars: { "--c": `var(${one.color})` } }, draw("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, draw("path", { d: "M0 4H22", "stroke-dasharray": one.dash })), one.name)));
  return make("div", { class: "chart" }, make("h3", {}, title), said, picture, keys);
}

function startCharts(root) {
  const curve = (pick) => facts.curves.map((line) => pick(line) ?? null);
  const losses = [
    ["classification", "ce", "--keep", ""], ["instance", "inst", "--ood", "6 3"], ["subgraph", "subgraph", "--unlabeled", "2 3"],
  ].map(([name, key, color, dash]) => ({ name, color, dash, values: curve((line) => (line.warmup && key !== "ce" ? null : line.losses?.[key])) }))
    .filter((one) => one.values.some((value) => value));
  if (losses.length) root.append(lineChart("Losses", losses, (value) => value.toFixed(2)));
  const share = (value) => percent(value, 0);
  root.append(lineChart(`Clean set, of all ${facts.things}`, [{ name: "selected", color: "--keep", dash: "", values: curve((line) => line.selected / line.samples) }], share));
  root.append(lineChart("Labels changed or left out", [{ name: "noise", color: "--relabel", dash: "", values: curve((line) => line.estimated_noise) }], share));
  if (facts.curves.some((line) => typeof line.validation_accuracy === "number")) {
    root.append(lineChart("Accuracy on the validation set", [{ name: "accuracy", color: "--unlabeled", dash: "", values: curve((line) => line.validation_accuracy) }], share));
  }
}
