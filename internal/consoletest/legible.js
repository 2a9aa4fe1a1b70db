(async () => {
  const { violations } = await axe.run({ exclude: ["#notice"] }); // which comes and goes
  const wrong = violations.flatMap((v) => v.nodes.map((n) =>
    `${v.id}: ${n.html.slice(0, 120)}: ${n.failureSummary}`));
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) wrong.push(`${wide} pixels wide`);
  for (const e of document.querySelectorAll("td.number")) {
    if (!e.textContent) continue;
    const { left, right } = e.getBoundingClientRect();
    if (left < 0 || right > innerWidth) wrong.push(`a number beside the page: ${e.textContent}`);
  }
  if (!document.title.includes("Penstock")) wrong.push("title");
  return wrong;
})()
