"use strict";
/* Sizes and times for people, and where an axis has its ticks. */
const Units = {
  bytes(value) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (value >= 1024 && unit + 1 < names.length) { value /= 1024; unit++; }
    return (unit ? value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2) : value) + " " +
      names[unit];
  },
  ns(value) {
    if (value < 1e3) return value.toFixed(0) + " ns";
    if (value < 1e6) return (value / 1e3).toFixed(1) + " µs";
    if (value < 1e9) return (value / 1e6).toFixed(1) + " ms";
    return (value / 1e9).toFixed(2) + " s";
  },
  /* The next of 1, 2, 5 times a power of ten. */
  nice(step) {
    const power = Math.pow(10, Math.floor(Math.log10(step)));
    for (const factor of [1, 2, 5]) if (factor * power >= step) return factor * power;
    return 10 * power;
  },
  ticks(from, to, step, label) {
    const list = [];
    for (let n = Math.ceil(from / step); n * step <= to && list.length < 100; n++)
      list.push({v: n * step, label: label(n * step)});
    return list;
  },
  byteTicks(from, to, pixels) {
    const wanted = Math.max(2, pixels / 48), step = (to - from) / wanted;
    const power = Math.pow(1024, Math.floor(Math.log(Math.max(to, 1)) / Math.log(1024)));
    const nice = Units.nice(Math.max(step, 1e-9) / power) * power;
    const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    const name = names[Math.round(Math.log(power) / Math.log(1024))];
    return Units.ticks(from, to, nice, v => +(v / power).toPrecision(4) + " " + name);
  },
  timeTicks(from, to, pixels) {
    const wanted = Math.max(2, pixels / 110);
    const step = Units.nice(Math.max(to - from, 1) / wanted);
    const unit = to >= 1e9 ? [1e9, " s"] : to >= 1e6 ? [1e6, " ms"] : to >= 1e3 ? [1e3, " µs"]
      : [1, " ns"];
    return Units.ticks(from, to, step, v => +(v / unit[0]).toPrecision(6) + unit[1]);
  },
};

/* A colour of the style sheet, which knows light and dark. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/* An element with text and children. Text is never parsed as HTML. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties || {});
  for (const child of children) element.append(child);
  return element;
}

function legendKey(name, value, css, thin) {
  const key = make("i", {className: thin ? "key thin" : "key"});
  key.style.background = css;
  return make("span", {}, key, name + (value ? " " : ""), make("b", {textContent: value || ""}));
}

/* What cannot be shown is said in its place. */
function guarded(element, what, work) {
  try {
    return work();
  } catch (error) {
    const said = make("p", {className: "error",
      textContent: what + " cannot be shown: " + error.message});
    if (element.tagName === "CANVAS") element.replaceWith(said); /* its children are not seen */
    else element.replaceChildren(said);
    console.error(error);
    return null;
  }
}
