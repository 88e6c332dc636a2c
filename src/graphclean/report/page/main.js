// Build all parts of the page.

for (const place of document.querySelectorAll("[data-mark]")) place.replaceWith(mark(verdictLook(place.dataset.mark)));
for (const name of facts.verdicts) {
  if (facts.counts[name]) {
    find("share").append(make("span", { title: `${count(facts.counts[name])} ${name}`, vars: { "--c": `var(--${name})`, "flex-grow": facts.counts[name] } }));
  }
}

startTheme();
if (reviewing) review.start();
const galleries = {};
for (const root of document.querySelectorAll("[data-gallery]")) galleries[root.dataset.gallery] = startGallery(root);
if (facts.groups) startDuplicates(find("duplicates-body"));
const table = startTable(find("table-body"));
if (facts.map) startMap(find("map-body"));
startClasses(find("classes-body"), galleries);
if (facts.border) startBorder(find("border-body"));
if (facts.curves.length) startCharts(find("training-body"));

for (const button of document.querySelectorAll("button[data-verdict]")) {
  button.addEventListener("click", () => {
    table.set({ verdicts: new Set([button.dataset.verdict]), text: "", label: "" });
    find("table").scrollIntoView();
  });
}

// Mark the current section in the navigation bar.
const nav = find("nav");
const links = new Map();
for (const section of document.querySelectorAll("section[data-nav]")) {
  const link = make("a", { href: `#${section.id}` }, section.dataset.nav);
  links.set(section, link);
  nav.append(link);
}
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const [section, link] of links) {
      if (section === entry.target) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const section of links.keys()) seen.observe(section);
