// The map: a canvas with a tooltip at the pointer; arrow keys move from point to point.

const REACH = 16;

function startMap(root) {
  const points = facts.map;
  const length = points.row.length;
  const canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": `Map of ${count(length)} ${facts.things}. Arrow keys walk from one to the next, Enter opens it, plus and minus zoom.` });
  const pen = canvas.getContext("2d");
  const tip = find("tip");
  const state = { by: "verdict", only: null, zoom: 1, x: 0, y: 0, at: -1 };
  let colors = new Map();

  const lookOf = (row) => (state.by === "verdict" ? verdictLook(verdict(row)) : classLook(rows[state.by][row]));
  const keyOf = (row) => (state.by === "verdict" ? rows.verdict[row] : rows[state.by][row]);
  const isFaint = (number) => state.only !== null && keyOf(points.row[number]) !== state.only;
  const fit = () => {
    const [width, height] = points.size.map((value) => Math.max(value, 1));
    return Math.min((canvas.clientWidth - 40) / width, (canvas.clientHeight - 40) / height);
  };
  /** The position of a point on the canvas. */
  function place(number) {
    const scale = fit() * state.zoom;
    return [
      canvas.clientWidth / 2 + state.x + (points.x[number] - points.size[0] / 2) * scale,
      canvas.clientHeight / 2 + state.y + (points.y[number] - points.size[1] / 2) * scale,
    ];
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const r = Math.min(6, Math.max(2.2, 90 / Math.sqrt(length)) * Math.sqrt(state.zoom));
    const paths = new Map();
    for (const [shape, { path }] of Object.entries(SHAPES)) paths.set(shape, new Path2D(path(r)));
    pen.lineWidth = Math.max(1.4, r / 2.6);
    pen.lineCap = "round";
    // Draw suspects on top of kept samples.
    const order = [...points.row.keys()];
    if (state.by === "verdict") order.sort((a, b) => drawOrder(a) - drawOrder(b));
    for (const number of order) {
      const row = points.row[number];
      const look = lookOf(row);
      const [x, y] = place(number);
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      pen.globalAlpha = isFaint(number) ? 0.1 : 0.82;
      pen.translate(x, y);
      if (SHAPES[look.shape].filled) {
        pen.fillStyle = colors.get(look.color);
        pen.fill(paths.get(look.shape));
      } else {
        pen.strokeStyle = colors.get(look.color);
        pen.stroke(paths.get(look.shape));
      }
      pen.translate(-x, -y);
    }
    pen.globalAlpha = 1;
    if (state.at >= 0) {
      const [x, y] = place(state.at);
      pen.strokeStyle = colors.get("--ink");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x, y, r + 5, 0, 2 * Math.PI);
      pen.stroke();
    }
  }
  const drawOrder = (number) => ({ keep: 0, unlabeled: 1, ood: 2, uncertain: 3, relabel: 4 })[verdict(points.row[number])] ?? 0;

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const names = ["--ink", "--soft", ...facts.verdicts.map((name) => `--${name}`), ...[...Array(CLASS_COLORS).keys()].map((number) => `--class-${number}`)];
    colors = new Map(names.map((name) => [name, style.getPropertyValue(name).trim()]));
    paint();
  }

  function nearest(x, y) {
    let best = -1;
    let least = REACH ** 2;
    for (let number = 0; number < length; number++) {
      if (isFaint(number)) continue;
      const [px, py] = place(number);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [number, distance];
    }
    return best;
  }

  function point(number) {
    state.at = number;
    paint();
    tip.hidden = number < 0;
    canvas.style.cursor = number < 0 ? "" : "pointer";
    if (number < 0) return;
    const row = points.row[number];
    tip.replaceChildren(picture(row, "") ?? "", verdictMark(verdict(row)), change(row), make("span", { class: "id" }, gist(row)));
    const box = canvas.getBoundingClientRect();
    const [x, y] = place(number);
    const [left, top] = [box.left + x, box.top + y];
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(8, left + 18 + wide > innerWidth - 8 ? left - wide - 18 : left + 18)}px`;
    tip.style.top = `${Math.max(8, Math.min(top - 30, innerHeight - tip.offsetHeight - 8))}px`;
  }

  function zoom(by) {
    const before = state.zoom;
    state.zoom = Math.min(24, Math.max(1, state.zoom * by));
    const rate = state.zoom / before;
    [state.x, state.y] = state.zoom === 1 ? [0, 0] : [state.x * rate, state.y * rate];
    point(-1);
  }

  /** Move to the nearest point in the direction of an arrow key. */
  function walk(dx, dy) {
    if (state.at < 0) return point(points.row.findIndex((_, number) => !isFaint(number)));
    const [x, y] = place(state.at);
    let best = state.at;
    let least = Infinity;
    for (let number = 0; number < length; number++) {
      const [px, py] = place(number);
      const ahead = (px - x) * dx + (py - y) * dy;
      const aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
      if (number === state.at || ahead <= 0 || aside > ahead || isFaint(number)) continue;
      if (ahead + aside < least) [best, least] = [number, ahead + aside];
    }
    point(best);
  }

  let drag = null;
  let tapped = -1;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && state.zoom > 1 && event.buttons) {
      if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 3 || drag.moved) {
        state.x += event.clientX - drag.x;
        state.y += event.clientY - drag.y;
        drag = { x: event.clientX, y: event.clientY, moved: true };
        point(-1);
      }
      return;
    }
    const number = nearest(event.offsetX, event.offsetY);
    if (number !== state.at) point(number);
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const number = nearest(event.offsetX, event.offsetY);
    // A finger can't hover: a first tap shows the tooltip, a second one on the same point opens the sample.
    if (number >= 0 && (event.pointerType === "mouse" || number === tapped)) openAt(number);
    else point(number);
    tapped = number;
  });
  canvas.addEventListener("pointerleave", (event) => {
    drag = null;
    if (event.pointerType === "mouse") point(-1);
  });
  canvas.addEventListener("blur", () => point(-1));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const arrow = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (arrow) walk(...arrow);
    else if (event.key === "Enter" && state.at >= 0) openAt(state.at);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "Escape") point(-1);
    else return;
    event.preventDefault();
  });
  function openAt(number) {
    tip.hidden = true;
    detail.open([points.row[number]], 0);
  }

  const legend = make("ul", { class: "legend" });
  function listLegend() {
    const totals = new Map();
    for (const row of points.row) totals.set(keyOf(row), (totals.get(keyOf(row)) ?? 0) + 1);
    const keys = [...totals.keys()].sort((a, b) => a - b);
    legend.replaceChildren(...keys.map((key) => {
      const [look, name] = state.by === "verdict" ? [verdictLook(facts.verdicts[key]), facts.verdicts[key]] : [classLook(key), className(key)];
      return make("li", {}, make("button", { type: "button", "aria-pressed": String(state.only === key),
        on: { click: () => { state.only = state.only === key ? null : key; listLegend(); point(-1); } } },
      mark(look), label(name), make("span", { class: "n" }, count(totals.get(key)))));
    }));
  }
  const by = choice("Color by", [["verdict", "verdict"], ["given", "given label"], ["proposed", "what it looks like"]], (value) => {
    Object.assign(state, { by: value, only: null });
    listLegend();
    point(-1);
  });
  const button = (text, title, act) => make("button", { type: "button", class: "button", "aria-label": title, on: { click: act } }, text);
  root.append(
    make("div", { class: "board" }, canvas, make("div", { class: "zoom" }, button("−", "Zoom out", () => zoom(1 / 1.5)), button("+", "Zoom in", () => zoom(1.5)))),
    make("div", {}, make("div", { class: "controls" }, by.label), make("p", { class: "said" }, `Choose a name to single it out.${facts.classes.length > CLASS_LOOKS ? ` Marks of classes repeat after ${CLASS_LOOKS}.` : ""}`), legend));
  listLegend();
  readColors();
  themeChanged.push(readColors);
  new ResizeObserver(paint).observe(canvas);
  addEventListener("scroll", () => { if (state.at >= 0) point(-1); }, { passive: true });
}
