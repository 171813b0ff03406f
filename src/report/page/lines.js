"use strict";
/* The charts of lines: memory over time, and the frontier. dygraphs draws axes, zooms and pans. */

const KINDS = ["persistent", "kept 5 % of it or more", "short-lived"];
const SIZES = ["below 1 MiB", "below 4 MiB", "below 16 MiB", "below 64 MiB", "64 MiB and more"];

/* Steps, filled down to the axis. Layers are drawn from the highest sum to the lowest. */
function areaPlotter(e) {
  const ctx = e.drawingContext, points = e.points, area = e.plotArea;
  if (!points.length) return;
  const bottom = e.dygraph.toDomYCoord(0);
  ctx.fillStyle = e.color;
  ctx.beginPath();
  ctx.moveTo(points[0].canvasx, bottom);
  for (let i = 0; i < points.length; i++) {
    ctx.lineTo(points[i].canvasx, points[i].canvasy);
    const next = i + 1 < points.length ? points[i + 1].canvasx : area.x + area.w;
    ctx.lineTo(next, points[i].canvasy);
  }
  ctx.lineTo(area.x + area.w, bottom);
  ctx.fill();
}

class MemoryChart {
  constructor(run, part, legend, view) {
    Object.assign(this, {run, part, legend, view, stack: "kinds", level: -1, own: false});
    this.graph = null;
    this.draw();
    view.listen(() => this.follow());
  }

  /* The columns of the chosen stack, as sums from below. */
  rows(level) {
    const run = this.run, columns = run.levels[level], unit = run.unit_bytes;
    const first = this.stack === "kinds" ? 3 : 6;
    const names = this.stack === "kinds" ? KINDS : SIZES;
    const budget = run.predicted.budget_bytes, bound = run.lower_bound_bytes;
    const rows = [];
    for (let i = 0; i <= columns[0].length; i++) {
      const at = Math.min(i, columns[0].length - 1);
      const time = i === at ? columns[0][i] * run.unit_ns : run.length_ns;
      const sums = [];
      let sum = 0;
      for (let k = 0; k < names.length; k++) sums.push(sum += columns[first + k][at] * unit);
      rows.push([time, ...sums.reverse(), columns[1][at] * unit, budget, bound]);
    }
    return rows;
  }

  names() {
    return [...(this.stack === "kinds" ? KINDS : SIZES)].reverse();
  }

  colours() {
    const layers = this.names().map((_, i, all) => colour("c" + (all.length - 1 - i)));
    return [...layers, colour("load"), colour("budget"), colour("bound")];
  }

  options(level) {
    const series = {};
    for (const name of this.names()) series[name] = {plotter: areaPlotter};
    series.budget = {strokeWidth: 1.6};
    series.bound = {strokeWidth: 1};
    return {
      file: this.rows(level),
      labels: ["time", ...this.names(), "load", "budget", "bound"],
      colors: this.colours(), series, stepPlot: true, strokeWidth: 1.2,
      axisLineColor: colour("line"), gridLineColor: colour("line"),
      rangeSelectorPlotStrokeColor: colour("soft"), rangeSelectorPlotFillColor: colour("line"),
    };
  }

  draw() {
    const top = Math.max(this.run.headroom, 1);
    this.level = 0;
    const fixed = {
      showRangeSelector: true, rangeSelectorHeight: 30, legend: "never", valueRange: [0, top],
      highlightCircleSize: 0, connectSeparatedPoints: true,
      axes: {
        x: {ticker: (a, b, pixels) => Units.timeTicks(a, b, pixels)},
        y: {ticker: (a, b, pixels) => Units.byteTicks(a, b, pixels), axisLabelWidth: 76},
      },
      highlightCallback: (_, x, points, row) => this.tell(row),
      unhighlightCallback: () => this.tell(-1),
      drawCallback: graph => this.moved(graph),
    };
    const options = Object.assign(fixed, this.options(0));
    const rows = options.file;
    delete options.file;
    this.graph = new Dygraph(this.part, rows, options);
    this.tell(-1);
  }

  moved(graph) {
    if (this.own || !this.graph) return;
    const [from, to] = graph.xAxisRange();
    this.view.set(Math.max(0, from), Math.min(this.run.length_ns, to));
  }

  /* Shows the window of the view, at the level that fits it. */
  follow() {
    const {from, to} = this.view, run = this.run;
    const fine = run.levels.length > 1 && to - from < run.length_ns / 3 ? 1 : 0;
    const options = fine !== this.level ? {file: this.rows(fine)} : {};
    const [a, b] = this.graph.xAxisRange();
    if (fine === this.level && a === from && b === to) return;
    this.level = fine;
    this.own = true;
    this.graph.updateOptions(Object.assign(options, {dateWindow: [from, to]}));
    this.own = false;
  }

  restyle() {
    this.own = true;
    this.graph.updateOptions(this.options(this.level));
    this.own = false;
    this.tell(-1);
  }

  /* The legend, with the values at a row of the data, or the peaks. */
  tell(row) {
    const run = this.run, columns = run.levels[this.level], colours = this.colours();
    const at = Math.min(row, columns[0].length - 1);
    const value = column => row < 0 ? "" : Units.bytes(columns[column][at] * run.unit_bytes);
    const first = this.stack === "kinds" ? 3 : 6;
    const names = this.names().reverse();
    const items = names.map((name, i) =>
      legendKey(name, value(first + i), colours[names.length - 1 - i]));
    items.push(legendKey("load", value(1), colour("load"), true));
    if (run.predicted.budget_bytes)
      items.push(legendKey("budget", Units.bytes(run.predicted.budget_bytes), colour("budget"),
        true));
    if (run.lower_bound_bytes)
      items.push(legendKey("bound without a stall", Units.bytes(run.lower_bound_bytes),
        colour("bound"), true));
    if (row >= 0)
      items.push(make("span", {className: "hint",
        textContent: "at " + Units.ns(columns[0][at] * run.unit_ns)}));
    this.legend.replaceChildren(...items);
  }
}

/* Budget against time, a line a policy. */
class FrontierChart {
  constructor(run, part, legend) {
    const policies = [...new Set(run.frontier.map(point => point.policy))];
    const budgets = [...new Set(run.frontier.map(point => point.budget_bytes))];
    const measured = run.measured, shown = run.predicted.unlimited_ns;
    const point = measured.budget_bytes && measured.iteration_ns && shown ?
      measured.iteration_ns / shown : null;
    if (point) budgets.push(measured.budget_bytes);
    budgets.sort((a, b) => a - b);
    const at = new Map(run.frontier.map(p => [p.policy + " " + p.budget_bytes, p.slowdown]));
    this.rows = [...new Set(budgets)].map(budget => [budget,
      ...policies.map(policy => at.get(policy + " " + budget) ?? null),
      point && budget === measured.budget_bytes ? point : null]);
    Object.assign(this, {part, legend, policies, point});
    this.draw();
  }

  colours() {
    const names = ["c1", "out", "in", "bound", "c4", "c3", "c0"];
    return [...this.policies.map((_, i) => colour(names[i % names.length])), colour("budget")];
  }

  draw() {
    const most = Math.max(...this.rows.flatMap(row => row.slice(1)).filter(v => v !== null));
    const top = 1 + Math.max(0.05, (most - 1) * 1.08);
    const spread = this.rows[this.rows.length - 1][0] - this.rows[0][0];
    this.graph = new Dygraph(this.part, this.rows, {
      labels: ["budget", ...this.policies, "measured"], colors: this.colours(),
      connectSeparatedPoints: true, drawPoints: true, pointSize: 3, strokeWidth: 1.8,
      series: {measured: {pointSize: 6, strokeWidth: 0}}, legend: "never",
      highlightCircleSize: 5, valueRange: [Math.max(0, 1 - (top - 1) * 0.04), top],
      dateWindow: [this.rows[0][0] - spread * 0.02,
        this.rows[this.rows.length - 1][0] + spread * 0.02],
      axisLineColor: colour("line"), gridLineColor: colour("line"),
      axes: {
        x: {ticker: (a, b, pixels) => Units.byteTicks(a, b, pixels / 2)},
        y: {axisLabelWidth: 76, axisLabelFormatter: v => +v.toFixed(3) + "×"},
      },
      highlightCallback: (_, x, points) => this.tell(x, points),
      unhighlightCallback: () => this.tell(),
    });
    this.tell();
  }

  restyle() {
    this.graph.destroy();
    this.draw();
  }

  tell(x, points) {
    const values = new Map((points || []).map(p => [p.name, p.yval]));
    const colours = this.colours();
    const items = this.policies.map((policy, i) => legendKey(policy,
      values.has(policy) ? values.get(policy).toFixed(3) + "×" : "", colours[i], true));
    if (this.point)
      items.push(legendKey("measured", this.point.toFixed(3) + "×", colour("budget")));
    if (x) items.push(make("span", {className: "hint", textContent: "at " + Units.bytes(x)}));
    this.legend.replaceChildren(...items);
  }
}
