// Light or dark theme: the system's unless the user chooses.

const themeChanged = [];
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const tell = () => themeChanged.forEach((listen) => listen());
  find("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  system.addEventListener("change", tell);
}
