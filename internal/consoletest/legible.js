(() => {
  const wrong = [];
  const light = (c) => {
    const [r, g, b] = c.map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const color = (text) => text.match(/[\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = color(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > .9) return c;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest(".out, .skip, :disabled, noscript")) continue;
    if ([...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && !e.closest("svg")) {
      const [a, b] = [color(getComputedStyle(e).color), ground(e)].map(light).sort((x, y) => y - x);
      const ratio = (a + .05) / (b + .05);
      if (ratio < 4.5) wrong.push(`contrast ${ratio.toFixed(1)}: ${e.textContent.slice(0, 40)}`);
    }
    const named = e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length;
    if (e.matches("button, a, input, select, textarea, [role=img]") && !named) {
      wrong.push("no name: " + e.outerHTML.slice(0, 80));
    }
    if (e.tabIndex > 0) wrong.push("its own place in the order of tabs: " + e.outerHTML.slice(0, 80));
  }
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) wrong.push(`${wide} pixels wide`);
  if (document.querySelectorAll("main, header, h1").length < 3) wrong.push("landmarks are missing");
  if (!document.title.includes("Penstock") || document.documentElement.lang !== "en") wrong.push("title or language");
  return wrong;
})()
