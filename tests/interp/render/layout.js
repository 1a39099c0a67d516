(() => {
  const faults = [];
  const seen = (node) => {
    if (!node.checkVisibility()) return null;
    const box = node.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(node).visibility !== "hidden" ? box : null;
  };
  const texts = [];
  let least = 99;
  document.querySelectorAll("svg text").forEach((node) => {
    const box = seen(node);
    if (!box) return;
    const svg = node.ownerSVGElement;
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const size = parseFloat(getComputedStyle(node).fontSize) * scale;
    if (size < least) least = size;
    const shown = [...node.childNodes].filter((part) => part.nodeName !== "title").map((part) => part.textContent).join("");
    const place = node.closest("section") ? node.closest("section").id : "head";
    texts.push({ svg, box, text: `${place} ${shown.slice(0, 30)}` });
  });
  document.querySelectorAll("h1,h2,h3,p,figcaption,summary,td,th,li,.hl-chip,.hl-control label,.hl-control output").forEach((node) => {
    const box = seen(node);
    if (box) texts.push({ svg: null, box, text: `${node.tagName} ${node.textContent.slice(0, 30)}`, node });
  });
  for (const one of texts) {
    if (one.box.left < -0.5 || one.box.right > innerWidth + 0.5) faults.push(`outside: ${one.text}`);
  }
  for (let i = 0; i < texts.length; i++) {
    for (let j = i + 1; j < texts.length; j++) {
      const a = texts[i], b = texts[j];
      if (a.svg !== b.svg && (a.svg === null) === (b.svg === null) && a.svg !== null) continue;
      if (a.node && b.node && (a.node.contains(b.node) || b.node.contains(a.node))) continue;
      const wide = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const high = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (wide > 1 && high > 3.5) faults.push(`overlap: ${a.text} | ${b.text}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`the page is ${document.documentElement.scrollWidth} px wide`);
  return { faults: faults.slice(0, 12), least };
})()
