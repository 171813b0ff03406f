"use strict";
/* Puts the charts of each run into the page. */

function highest(run) {
  const most = Math.max(...run.levels[0][1]) * run.unit_bytes;
  return Math.max(most, run.predicted.budget_bytes || 0) * 1.05;
}

function drawTime(run, part, redraws) {
  const view = new View(run.length_ns);
  const group = part("time"), readout = group.querySelector("[data-role=readout]");
  const tell = text => { readout.textContent = text; };
  const legend = group.querySelector("[data-role=legend]");
  run.headroom = highest(run);
  const memory = guarded(part("memory"), "The memory curve",
    () => new MemoryChart(run, part("memory"), legend, view));
  const area = () => memory ? memory.graph.getArea() : {x: 76, w: part("lanes").clientWidth - 86};
  const lanes = guarded(part("lanes"), "The lanes",
    () => new LanesChart(run, part("lanes"), view, area, tell));
  const map = guarded(part("map"), "The address map",
    () => new MapChart(run, part("map"), view, area, tell));
  group.querySelector("[data-role=map-note]").textContent = "an example packing" +
    (run.map.count < run.map.total ? "; the " + run.map.count + " largest of " + run.map.total +
      " residencies" : "");
  const acts = {in: () => view.zoom(0.5), out: () => view.zoom(2), all: () => view.all()};
  for (const button of group.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", acts[button.dataset.zoom]);
  group.addEventListener("keydown", event => {
    if (!/^(SELECT|INPUT|BUTTON)$/.test(event.target.tagName) && view.key(event))
      event.preventDefault();
  });
  group.querySelector("[data-role=stack]").addEventListener("change", event => {
    memory.stack = event.target.value;
    memory.restyle();
  });
  redraws.push(() => { if (memory) memory.restyle(); });
  for (const chart of [lanes, map]) if (chart) redraws.push(() => chart.draw());
  return view;
}

function drawRun(run, place, redraws) {
  place.replaceChildren(document.getElementById("charts").content.cloneNode(true));
  const part = name => place.querySelector(`[data-part=${name}]`);
  const role = name => place.querySelector(`[data-role=${name}]`);
  place.view = guarded(part("time"), "The curves", () => drawTime(run, part, redraws));
  if (run.frontier.length < 2) part("frontier-card").remove();
  else {
    const chart = guarded(part("frontier"), "The frontier",
      () => new FrontierChart(run, part("frontier"), role("frontier-legend")));
    redraws.push(() => { if (chart) chart.restyle(); });
  }
  if (!run.lost.length) part("lost-card").remove();
  else {
    const draw = () => guarded(part("lost"), "The lost time",
      () => drawLost(run, part("lost"), role("lost-legend")));
    draw();
    redraws.push(draw);
  }
  role("blocks-note").textContent = run.blocks.length < run.blocks_total ?
    "the " + run.blocks.length + " largest of " + run.blocks_total : String(run.blocks_total);
  guarded(part("blocks"), "The table of blocks", () => new BlockTable(run, part("blocks"),
    role("filter"), role("filter-note"), role("more")));
}

function begin() {
  const redraws = [], places = document.querySelectorAll(".run > .charts");
  let data = null;
  for (const place of places)
    guarded(place, "The report's data", () => {
      data = data || JSON.parse(document.getElementById("data").textContent);
      drawRun(data.runs[+place.parentElement.dataset.run], place, redraws);
    });
  const all = () => { for (const redraw of redraws) redraw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(all, 100);
  });
  document.documentElement.dataset.ready = "yes";
}

begin();
