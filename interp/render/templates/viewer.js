(() => {
  if (window.headlabViewer) return window.headlabViewer();
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const open = async (details) => {
    const frame = details.querySelector("iframe");
    if (frame.srcdoc) return;
    const code = await unpack(document.querySelector(".hl-circuitsvis").textContent);
    const props = details.querySelector(".hl-props").textContent.trim();
    frame.srcdoc =
      '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; ' +
      "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:\">" +
      "<style>body{font:14px sans-serif;margin:8px;color:#16191D;background:#FFFFFF}</style><div id=\"view\"></div><script>" +
      code +
      '<\/script><script>CircuitsVis.render("view",CircuitsVis.AttentionHeads,' +
      props +
      ")<\/script>";
  };
  document.addEventListener(
    "toggle",
    (event) => {
      const details = event.target;
      if (details.classList && details.classList.contains("hl-viewer") && details.open) open(details);
    },
    true,
  );
  window.headlabViewer = () => {
    if (typeof DecompressionStream === "undefined") return;
    document.querySelectorAll(".hl-viewer[hidden]").forEach((details) => {
      details.hidden = false;
    });
  };
  window.headlabViewer();
})();
