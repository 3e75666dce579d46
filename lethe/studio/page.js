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

  // The noise stands in front where it is what is set; else it is only a shape. The length is in epochs or in steps.
  const arrange = () => {
    const noise = document.getElementById("noise").closest(".control"), asked = document.getElementById("find").closest(".control");
    if (document.getElementById("find").value === "epsilon") document.getElementById("front").append(noise); else asked.after(noise);
    document.getElementById("count-words").textContent = document.getElementById("length").value === "steps" ? "Steps" : "Epochs";
  };
  arrange();
  document.addEventListener("change", arrange);
  $(document).on("shiny:updateinput", () => setTimeout(arrange));

  // Drag or click in the picture: the field that it names is set where the pointer is let go.
  let dragging = false;
  const aim = (event) => {
    const svg = document.querySelector("svg.price");
    if (!svg?.dataset.field) return null;
    const {field, start, end, low, high} = svg.dataset, at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const up = field === "epsilon", share = Math.min(1, Math.max(0, ((up ? at.y : at.x) - start) / (end - start)));
    const value = Number((low * (high / low) ** share).toPrecision(3)), place = Number(start) + share * (end - start);
    svg.querySelector(".guide path").setAttribute("d", up ? `M40 ${place}H388` : `M${place} 15V196`);
    svg.querySelector(".guide text").textContent = `${field} ${value}`;
    return {field, value};
  };
  document.addEventListener("pointerdown", (event) => { dragging = !event.target.closest(".mark") && !!event.target.closest("svg.price"); });
  document.addEventListener("pointermove", (event) => { if (dragging) aim(event); });
  document.addEventListener("pointercancel", () => { dragging = false; });
  document.addEventListener("pointerup", (event) => {
    const aimed = dragging && aim(event);
    dragging = false;
    if (!aimed) return;
    const input = document.getElementById(aimed.field);
    input.value = aimed.value;
    input.dispatchEvent(new Event("change", {bubbles: true}));
  });

  document.addEventListener("click", async (event) => {
    const change = event.target.closest("[data-alternative]");
    if (change) Shiny.setInputValue("alternative", change.dataset.alternative, {priority: "event"});
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
