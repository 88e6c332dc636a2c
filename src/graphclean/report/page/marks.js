// Every verdict and class has a shape as well as a color.

/** Outlines of markers centered at (0, 0) with radius about `r`: filled shapes, or strokes only. */
const SHAPES = {
  o: { path: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`, filled: true },
  s: { path: (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}Z`, filled: true },
  "^": { path: (r) => `M0 ${-1.2 * r}L${1.15 * r} ${0.9 * r}H${-1.15 * r}Z`, filled: true },
  D: { path: (r) => `M0 ${-1.25 * r}L${1.25 * r} 0L0 ${1.25 * r}L${-1.25 * r} 0Z`, filled: true },
  x: { path: (r) => `M${-r} ${-r}L${r} ${r}M${-r} ${r}L${r} ${-r}`, filled: false },
  "+": { path: (r) => `M0 ${-r}V${r}M${-r} 0H${r}`, filled: false },
};
const CLASS_SHAPES = ["o", "^", "s", "D"];
const CLASS_COLORS = facts.class_colors;
const CLASS_LOOKS = CLASS_SHAPES.length * CLASS_COLORS;

const verdictLook = (name) => ({ shape: facts.marks[name], color: `--${name}` });
const classLook = (place) =>
  place < 0
    ? { shape: "+", color: "--soft" }
    : {
        shape: CLASS_SHAPES[Math.floor(place / CLASS_COLORS) % CLASS_SHAPES.length],
        color: `--class-${place % CLASS_COLORS}`,
      };

function mark(look) {
  const shape = SHAPES[look.shape];
  const path = draw("path", { d: shape.path(4.6), fill: shape.filled ? "currentColor" : "none" });
  if (!shape.filled) fill(path, { stroke: "currentColor", "stroke-width": 2.6, "stroke-linecap": "round" }, []);
  const picture = draw("svg", { viewBox: "-6 -6 12 12", "aria-hidden": "true" }, path);
  return make("span", { class: "mark", vars: { "--c": `var(${look.color})` } }, picture);
}

const verdictMark = (name) =>
  make("span", { class: "verdict" }, mark(verdictLook(name)), make("span", { class: "word" }, name));
