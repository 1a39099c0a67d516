(() => {
  const parse = (text) => {
    const found = /rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)/.exec(text);
    return found ? { rgb: [1, 2, 3].map((k) => Number(found[k])), alpha: found[4] === undefined ? 1 : Number(found[4]) } : null;
  };
  const over = (top, alpha, below) => below.map((value, k) => top[k] * alpha + value * (1 - alpha));
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const c = value / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const shapes = new Set(["rect", "circle", "ellipse", "polygon"]);
  // What a node itself paints at a point, as a colour and how much of it covers what lies below.
  const paint = (node) => {
    const style = getComputedStyle(node);
    let colour = null;
    if (node instanceof SVGElement) {
      const name = node.tagName.toLowerCase();
      if ((shapes.has(name) || name === "path") && style.fill !== "none") {
        colour = parse(style.fill);
        if (colour) colour.alpha *= Number(style.fillOpacity);
      }
    } else {
      colour = parse(style.backgroundColor);
    }
    if (!colour) return null;
    for (let up = node; up; up = up.parentElement) colour.alpha *= Number(getComputedStyle(up).opacity);
    return colour.alpha > 0 ? colour : null;
  };
  const behind = (node, x, y) => {
    const painted = [];
    for (const other of document.elementsFromPoint(x, y)) {
      if (node.contains(other) && (other !== node || node instanceof SVGElement)) continue;
      const colour = paint(other);
      if (colour) painted.push(colour);
    }
    return painted.reverse().reduce((below, colour) => over(colour.rgb, colour.alpha, below), [255, 255, 255]);
  };
  const seen = [];
  let count = 0;
  const check = (node, ink, text) => {
    const box = node.getBoundingClientRect();
    if (!node.checkVisibility() || box.width === 0 || box.height === 0) return;
    count += 1;
    const style = getComputedStyle(node);
    const halo = node instanceof SVGElement && style.paintOrder.startsWith("stroke") && style.stroke !== "none" ? parse(style.stroke) : null;
    const ground = halo ? halo.rgb : behind(node, box.left + box.width / 2, box.top + box.height / 2);
    let alpha = ink.alpha;
    for (let up = node; up; up = up.parentElement) alpha *= Number(getComputedStyle(up).opacity);
    const ratio = contrast(over(ink.rgb, alpha, ground), ground);
    if (ratio < 4.5) seen.push(`${ratio.toFixed(2)} ${text.trim().slice(0, 40)}`);
  };
  document.querySelectorAll("svg text, svg tspan").forEach((node) => {
    const own = [...node.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim());
    const ink = parse(getComputedStyle(node).fill);
    if (own && ink) check(node, ink, node.textContent);
  });
  document.querySelectorAll("body *:not(svg *, svg, script, style, iframe, input)").forEach((node) => {
    const own = [...node.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim());
    const ink = parse(getComputedStyle(node).color);
    if (own && ink) check(node, ink, node.textContent);
  });
  return { count, faults: [...new Set(seen)].slice(0, 12) };
})()
