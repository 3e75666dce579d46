"use strict";
// Light or dark, as the system says, also when it changes its mind.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const paint = () => { document.documentElement.dataset.bsTheme = dark.matches ? "dark" : "light"; };
paint();
dark.addEventListener("change", paint);

const told = (text) => { document.getElementById("told").textContent = text; };

document.addEventListener("DOMContentLoaded", () => {
  for (const hint of document.querySelectorAll(".hint")) {
    document.getElementById(hint.id.replace(/-hint$/, ""))?.setAttribute("aria-describedby", hint.id);
  }
  // The address is the state: nothing is loaded again.
  Shiny.addCustomMessageHandler("link", ({query}) => { history.replaceState(null, "", query ? `?${query}` : location.pathname); });

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]"), save = event.target.closest("[data-save]");
    if (copy) {
      try {
        await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent);
        told("Copied.");
      } catch (error) { told("The browser does not allow copying; select the text instead."); }
    } else if (save) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([document.getElementById("run-yaml").textContent], {type: "application/yaml"}));
      link.download = "run.yaml";
      link.click();
      URL.revokeObjectURL(link.href);
      told("Saved as run.yaml.");
    }
  });

  // The file is read here and sent as text: no copy of it is made anywhere.
  document.getElementById("open").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    if (file.size > 1000000) { told(`${file.name} has ${file.size} bytes; a run has at most 1000000.`); return; }
    const text = await file.text();
    event.target.value = "";
    Shiny.setInputValue("opened", {name: file.name, text: text}, {priority: "event"});
  });
});
