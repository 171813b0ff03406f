"use strict";
/* What dygraphs does not draw: the window in time that all charts share, lanes, addresses. */

class View {
  constructor(length) {
    Object.assign(this, {length, from: 0, to: length, listeners: []});
  }

  listen(call) { this.listeners.push(call); }

  set(from, to) {
    const least = this.length / 1e6;
    if (!(to - from >= least)) { const mid = (from + to) / 2; from = mid - least / 2; to = from + least; }
    const width = Math.min(to - from, this.length);
    from = Math.min(Math.max(0, from), this.length - width);
    to = from + width;
    if (from === this.from && to === this.to) return;
    this.from = from;
    this.to = to;
    for (const call of this.listeners) call();
  }

  zoom(factor, at) {
    const centre = at ?? (this.from + this.to) / 2;
    this.set(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  pan(share) {
    const step = (this.to - this.from) * share;
    this.set(this.from + step, this.to + step);
  }

  all() { this.set(0, this.length); }

  /* True if the key means something here. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const acts = {"+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "0": () => this.all(), "Home": () => this.all(), "ArrowLeft": () => this.pan(-0.2),
      "ArrowRight": () => this.pan(0.2)};
    if (!acts[event.key]) return false;
    acts[event.key]();
    return true;
  }
}

/* A canvas on the time axis of the memory chart: same left edge, same width. */
class TimeCanvas {
  constructor(canvas, view, area, tell) {
    Object.assign(this, {canvas, view, area, tell});
    canvas.tabIndex = 0;
    view.listen(() => this.later());
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.shiftKey) return; /* the page scrolls */
      event.preventDefault();
      view.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX));
    }, {passive: false});
    let grabbed = null;
    canvas.addEventListener("pointerdown", event => {
      grabbed = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { grabbed = null; });
    canvas.addEventListener("pointermove", event => {
      if (grabbed === null) { this.tell(this.find(event.offsetX, event.offsetY)); return; }
      view.pan((grabbed - event.offsetX) / this.area().w);
      grabbed = event.offsetX;
    });
    canvas.addEventListener("pointerleave", () => this.tell(""));
    canvas.addEventListener("dblclick", () => view.all());
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  time(x) {
    const area = this.area();
    return this.view.from + (x - area.x) / area.w * (this.view.to - this.view.from);
  }

  /* Prepares the context. Returns it with x(ns) for this window. */
  begin() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const ctx = this.canvas.getContext("2d"), area = this.area(), view = this.view;
    ctx.scale(ratio, ratio);
    ctx.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    const scale = area.w / (view.to - view.from);
    return {ctx, area, height: box.height, x: ns => area.x + (ns - view.from) * scale};
  }

  clip(ctx, area, height) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.x, 0, area.w, height);
    ctx.clip();
  }
}

class LanesChart extends TimeCanvas {
  constructor(run, ...rest) {
    super(...rest);
    this.run = run;
    this.draw();
  }

  draw() {
    const {ctx, area, height, x} = this.begin(), run = this.run;
    const rows = [["compute", null, "c0"], ["out", run.lanes.out, "out"], ["in", run.lanes.in, "in"]];
    const row = height / rows.length, bar = Math.min(20, row - 10);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillStyle = colour("soft");
    rows.forEach(([name], i) => ctx.fillText(name, area.x - 8, row * (i + 0.5)));
    this.clip(ctx, area, height);
    rows.forEach(([, pieces, css], i) => {
      const y = row * (i + 0.5) - bar / 2;
      ctx.fillStyle = colour("chip");
      ctx.fillRect(area.x, y, area.w, bar);
      ctx.fillStyle = colour(css);
      if (!pieces) ctx.fillRect(x(0), y, x(run.length_ns) - x(0), bar);
      else this.pieces(pieces, (a, b) => ctx.fillRect(x(a), y, Math.max(b - a ? x(b) - x(a) : 0, 0.7), bar));
    });
    const top = row * 0.5 - bar / 2;
    this.pieces(run.lanes.stall, (a, b) => {
      const width = Math.max(x(b) - x(a), 0.7);
      ctx.fillStyle = colour("card");
      ctx.fillRect(x(a), top, width, bar);
      ctx.fillStyle = colour("stall");
      ctx.fillRect(x(a), 0, width, height);
    });
    ctx.restore();
  }

  pieces(list, call) {
    const unit = this.run.unit_ns;
    for (let i = 0; i < list.length; i += 2) {
      const from = list[i] * unit, to = from + list[i + 1] * unit;
      if (to >= this.view.from && from <= this.view.to) call(from, to);
    }
  }

  find(px) {
    const at = this.time(px), found = [];
    for (const name of ["stall", "out", "in"])
      this.pieces(this.run.lanes[name], (a, b) => {
        if (a <= at && at < b) found.push(name + " for " + Units.ns(b - a));
      });
    return at < 0 || at > this.run.length_ns ? "" :
      [Units.ns(at), ...found.slice(0, 4)].join(" · ");
  }
}

class MapChart extends TimeCanvas {
  constructor(run, ...rest) {
    super(...rest);
    this.run = run;
    this.draw();
  }

  rectangle(i) {
    const [start, length, offset, size, kind] = this.run.map.rectangles.slice(5 * i, 5 * i + 5);
    const {unit_ns, unit_bytes} = this.run;
    return {from: start * unit_ns, to: (start + length) * unit_ns, offset: offset * unit_bytes,
      size: size * unit_bytes, kind};
  }

  draw() {
    const {ctx, area, height, x} = this.begin(), run = this.run;
    const high = Math.max(run.map.height, 1), bottom = height - 6, top = 6;
    const y = bytes => bottom - (bottom - top) * bytes / high;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    for (const tick of Units.byteTicks(0, high, bottom - top)) {
      ctx.fillStyle = colour("soft");
      ctx.fillText(tick.label, area.x - 8, y(tick.v));
    }
    ctx.fillStyle = colour("chip");
    ctx.fillRect(area.x, top, area.w, bottom - top);
    this.clip(ctx, area, height);
    const fills = [0, 1, 2].map(kind => colour("c" + kind));
    ctx.strokeStyle = colour("card");
    ctx.lineWidth = 0.6;
    for (let i = 0; i < run.map.count; i++) {
      const r = this.rectangle(i), h = y(r.offset) - y(r.offset + r.size);
      ctx.fillStyle = fills[r.kind];
      for (const shift of r.to > run.length_ns ? [0, run.length_ns] : [0]) {
        const left = x(r.from - shift), width = x(r.to - shift) - left;
        if (left > area.x + area.w || left + width < area.x) continue;
        ctx.fillRect(left, y(r.offset + r.size), Math.max(width, 0.6), Math.max(h, 0.6));
        if (width > 3 && h > 3) ctx.strokeRect(left, y(r.offset + r.size), width, h);
      }
    }
    ctx.restore();
    Object.assign(this, {top, bottom, high});
  }

  find(px, py) {
    const at = this.time(px), run = this.run;
    const address = (this.bottom - py) / (this.bottom - this.top) * this.high;
    for (let i = 0; i < run.map.count; i++) {
      const r = this.rectangle(i);
      if (address < r.offset || address >= r.offset + r.size) continue;
      if ((r.from <= at && at < r.to) || (r.from <= at + run.length_ns && at + run.length_ns < r.to))
        return [Units.ns(at), KINDS[r.kind], Units.bytes(r.size), "resident for " +
          Units.ns(r.to - r.from)].join(" · ");
    }
    return "";
  }
}

/* Bars of the first iterations, by cause. */
function drawLost(run, part, legend) {
  const causes = [["observed", "c1"], ["evicted wrongly", "out"], ["late", "budget"],
    ["switched", "bound"]];
  const most = Math.max(1, ...run.lost.map(row => causes.reduce((sum, [name]) => sum + row[name], 0)));
  legend.replaceChildren(...causes.map(([name, css]) => legendKey(name, "", colour(css))));
  part.replaceChildren(...run.lost.map((row, i) => {
    const stack = make("span", {className: "stack"});
    let sum = 0;
    for (const [name, css] of causes) {
      const piece = make("i", {title: name + " " + Units.ns(row[name])});
      piece.style.width = 100 * row[name] / most + "%";
      piece.style.background = colour(css);
      stack.append(piece);
      sum += row[name];
    }
    return make("div", {className: "row"}, make("span", {textContent: i + 1}), stack,
      make("span", {textContent: Units.ns(sum) + " of " + Units.ns(row.ns)}));
  }));
}
