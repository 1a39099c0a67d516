(() => {
  if (window.headlabFigures) return window.headlabFigures();
  const hide = (figure) => {
    const control = figure.querySelector(".hl-control");
    const input = control.querySelector("input");
    const least = Number(input.value);
    figure.querySelectorAll("[data-v]").forEach((edge) => {
      edge.style.display = Number(edge.dataset.v) < least ? "none" : "";
    });
    const edges = [...figure.querySelectorAll("svg.hl-wide path[data-v]")];
    const words = { value: least.toFixed(2), shown: edges.filter((edge) => edge.style.display === "").length, total: edges.length };
    control.querySelector("output").textContent = control.dataset.count.replace(/\{(value|shown|total)\}/g, (_, key) => words[key]);
  };
  const light = (name) => {
    const svg = name.closest("svg");
    const at = name.dataset.n;
    svg.classList.add("hl-dim");
    const near = new Set([at]);
    svg.querySelectorAll("[data-e]").forEach((arc) => {
      const ends = arc.dataset.e.split(" ");
      const on = ends.includes(at);
      arc.classList.toggle("hl", on);
      if (on) ends.forEach((end) => near.add(end));
    });
    svg.querySelectorAll("[data-n]").forEach((other) => other.classList.toggle("hl", near.has(other.dataset.n)));
  };
  const named = (event) => (event.target.closest ? event.target.closest("[data-n]") : null);
  const off = (event) => {
    const name = named(event);
    if (name) name.closest("svg").classList.remove("hl-dim");
  };
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, (event) => named(event) && light(named(event)));
  for (const kind of ["pointerout", "focusout"]) document.addEventListener(kind, off);
  document.addEventListener("input", (event) => {
    const control = event.target.closest(".hl-control");
    if (control) hide(control.closest(".hl-figure"));
  });
  window.headlabFigures = () => {
    document.querySelectorAll(".hl-control[hidden]").forEach((control) => {
      control.hidden = false;
      hide(control.closest(".hl-figure"));
    });
    document.querySelectorAll("[data-n]:not([tabindex])").forEach((name) => name.setAttribute("tabindex", "0"));
  };
  window.headlabFigures();
})();
