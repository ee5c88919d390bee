/* Tables of the class "sortable": a click on a header, or Enter on it, sorts by this column. */
(() => {
  const units = {k: 1e3, M: 1e6, G: 1e9};
  /* The number at the start of a text, the text itself, or null for an empty cell. data-sort overrides the text. */
  const valueOf = cell => {
    const text = (cell.dataset.sort ?? cell.textContent).trim().replace(/,/g, "").replace("−", "-");
    if (!text || text === "–") return null;
    const match = text.match(/^(?:p *)?([<=]?) *([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)([kMG](?![a-z]))?/);
    if (!match) return text;
    return Number(match[2]) * (units[match[3]] ?? 1) * (match[1] === "<" ? 0.999 : 1);
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
  const sort = (table, column, direction) => {
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter(row => !row.classList.contains("divide"));
      rows.forEach((row, index) => { row.dataset.place ??= index; });
      const place = row => Number(row.dataset.place);
      rows.sort((one, other) => {
        if (direction === "none") return place(one) - place(other);
        const a = valueOf(one.cells[column]), b = valueOf(other.cells[column]);
        if (a === null || b === null) return (a === null) - (b === null) || place(one) - place(other);
        return (direction === "ascending" ? 1 : -1) * compare(a, b) || place(one) - place(other);
      });
      body.append(...rows);
    }
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      if (!header.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const isNumber = [...table.tBodies].some(body =>
          [...body.rows].some(row => row.cells[column] && typeof valueOf(row.cells[column]) === "number"));
        const order = isNumber ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
        const next = order[(order.indexOf(header.getAttribute("aria-sort") ?? "none") + 1) % 3];
        headers.forEach(each => each.removeAttribute("aria-sort"));
        if (next !== "none") header.setAttribute("aria-sort", next);
        if (table.dispatchEvent(new CustomEvent("sortrows", {cancelable: true, detail: {column, direction: next}}))) {
          sort(table, column, next);
        }
      });
    });
  }
})();
