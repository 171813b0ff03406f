"use strict";
/* The table of blocks: sorted by a click on a heading, filtered by words. */

const COLUMNS = [
  {name: "block", at: 0, show: v => v},
  {name: "size", at: 1, show: Units.bytes},
  {name: "kind", at: 2, show: v => KINDS[v].split(" ")[0], left: true},
  {name: "allocated", at: 3, show: (v, row) => row[2] === 0 ? "before" : Units.ns(v)},
  {name: "lives for", at: 4, show: Units.ns},
  {name: "uses", at: 5, show: v => v},
  {name: "gaps", at: 6, show: v => v},
  {name: "longest gap", at: 7, show: v => v ? Units.ns(v) : "–"},
  {name: "absences", at: 8, show: v => v || "–"},
];
const ROWS_AT_ONCE = 40;

class BlockTable {
  constructor(run, table, filter, note, more) {
    Object.assign(this, {run, table, filter, note, more, by: 1, down: true, shown: ROWS_AT_ONCE});
    this.head();
    filter.addEventListener("input", () => { this.shown = ROWS_AT_ONCE; this.draw(); });
    more.addEventListener("click", () => { this.shown += 10 * ROWS_AT_ONCE; this.draw(); });
    this.draw();
  }

  head() {
    const row = make("tr");
    for (const column of COLUMNS) {
      const button = make("button", {type: "button", textContent: column.name});
      button.addEventListener("click", () => this.sort(column.at));
      const cell = make("th", {scope: "col", className: column.left ? "left" : ""}, button);
      cell.dataset.column = column.at;
      row.append(cell);
    }
    row.append(make("th", {scope: "col", className: "left", textContent: "history"}));
    this.body = make("tbody");
    this.table.replaceChildren(make("thead", {}, row), this.body);
  }

  sort(at) {
    this.down = this.by === at ? !this.down : true;
    this.by = at;
    this.draw();
  }

  /* A filter: words that must occur, or a size with `>` or `<` before it. */
  matcher() {
    const text = this.filter.value.trim().toLowerCase();
    const size = /^([<>])\s*([\d.]+)\s*([kmgt]?)(i?b)?$/.exec(text);
    if (size) {
      const limit = size[2] * Math.pow(1024, " kmgt".indexOf(size[3] || " "));
      return row => size[1] === ">" ? row[1] > limit : row[1] < limit;
    }
    const words = text.split(/\s+/).filter(Boolean);
    return row => words.every(word => String(row[0]) === word || KINDS[row[2]].includes(word));
  }

  history(text) {
    const line = make("span", {className: "history"});
    const classes = {"#": "use", "-": "live", "~": "gone", " ": ""};
    for (const letter of text) line.append(make("i", {className: classes[letter]}));
    return line;
  }

  draw() {
    const rows = this.run.blocks.filter(this.matcher());
    const sign = this.down ? -1 : 1;
    rows.sort((a, b) => sign * (a[this.by] - b[this.by]) || a[0] - b[0]);
    this.body.replaceChildren(...rows.slice(0, this.shown).map(row => make("tr", {},
      ...COLUMNS.map(column => make("td", {className: column.left ? "left" : "",
        textContent: column.show(row[column.at], row)})),
      make("td", {className: "left"}, this.history(row[9])))));
    for (const cell of this.table.querySelectorAll("th[data-column]")) {
      const own = +cell.dataset.column === this.by;
      cell.setAttribute("aria-sort", own ? (this.down ? "descending" : "ascending") : "none");
      const name = COLUMNS.find(column => column.at === +cell.dataset.column).name;
      cell.firstChild.textContent = name + (own ? (this.down ? " ↓" : " ↑") : "");
    }
    this.note.textContent = rows.length + " of " + this.run.blocks.length + " match";
    this.more.hidden = rows.length <= this.shown;
  }
}
