/* The table of pairs with its filter, and the density maps: a rule at a time, with the values of a pair. */
(() => {
  const data = document.getElementById("pair-data");
  if (!data) return;
  const {languages, rules, samples, pairs} = JSON.parse(data.dataset.header);
  const bytes = Uint8Array.from(atob(data.dataset.values), each => each.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  /* A language has two bytes if there are many. */
  const wide = languages.length > 256 ? 2 : 1;
  const index = place => wide === 2 ? view.getUint16(2 * place) : view.getUint8(place);
  const counts = 2 * wide * pairs, values = counts + 4 * pairs;
  /* A probability has the first three bytes of a 32-bit float. */
  const number = new DataView(new ArrayBuffer(4));
  const probability = (rule, row) => {
    for (let k = 0; k < 3; k++) number.setUint8(k, bytes[values + 3 * (rule * pairs + row) + k]);
    return number.getFloat32(0);
  };
  const rows = Array.from({length: pairs}, (_, row) => {
    const [a, b] = [index(row), index(pairs + row)], count = view.getUint32(counts + 4 * row);
    const cells = rules.flatMap((_, rule) => {
      const p = probability(rule, row);
      return [100 * p, samples[rule] * p / count];
    });
    return {codes: [languages[a], languages[b]], name: `${languages[a]}-${languages[b]}`, cells: [count, ...cells]};
  });
  const figure = value => value === 0 ? "0" : value >= 1e3 && value < 1e6 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
  const thousands = value => value.toLocaleString("en");

  const table = document.getElementById("pair-table"), body = table.tBodies[0];
  const filter = document.getElementById("pair-filter"), more = document.getElementById("pair-more");
  let order = rows, limit = 100;
  const draw = () => {
    const words = filter.value.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
    const found = order.filter(row => words.every(word => row.codes.some(code => code.toLowerCase().startsWith(word))));
    body.replaceChildren(...found.slice(0, limit).map(row => {
      const line = document.createElement("tr");
      [row.name, thousands(row.cells[0]), ...row.cells.slice(1).map(figure)].forEach(text => {
        line.insertCell().textContent = text;
      });
      return line;
    }));
    document.getElementById("pair-count").textContent =
      `${thousands(Math.min(limit, found.length))} of ${thousands(found.length)} pairs shown`;
    more.hidden = found.length <= limit;
  };
  table.addEventListener("sortrows", event => {
    event.preventDefault();
    const {column, direction} = event.detail, sign = direction === "ascending" ? 1 : -1;
    const value = row => column ? row.cells[column - 1] : row.name;
    order = direction === "none" ? rows : [...rows].sort((one, other) =>
      sign * (column ? value(one) - value(other) : value(one).localeCompare(value(other))));
    draw();
  });
  filter.addEventListener("input", () => { limit = 100; draw(); });
  more.addEventListener("click", () => { limit *= 10; draw(); });
  for (const each of document.querySelectorAll("[data-script]")) each.hidden = false;
  draw();

  const byName = new Map(rows.map(row => [row.name, row]));
  for (const group of document.querySelectorAll(".maps")) {
    const figures = [...group.querySelectorAll("figure")], output = group.querySelector("output");
    const buttons = [...group.querySelectorAll(".rules button")];
    const select = chosen => {
      figures.forEach((each, k) => { each.hidden = buttons.length > 0 && k !== chosen; });
      buttons.forEach((each, k) => each.setAttribute("aria-pressed", String(k === chosen)));
    };
    buttons.forEach((each, k) => each.addEventListener("click", () => select(k)));
    select(Math.max(0, buttons.findIndex(each => each.getAttribute("aria-pressed") === "true")));
    for (const map of group.querySelectorAll("svg")) {
      const names = [...map.querySelectorAll('[text-anchor="end"] text')].map(each => each.textContent);
      const {margin, cell} = map.dataset;
      const show = event => {
        const {top, left} = map.getBoundingClientRect();
        const place = end => Math.floor((end - margin) / cell);
        const [a, b] = [names[place(event.clientY - top)], names[place(event.clientX - left)]];
        if (!a || !b) return;
        const row = byName.get(`${a}-${b}`) ?? byName.get(`${b}-${a}`);
        const parts = row && rules.map((rule, k) => `${rule} ${figure(row.cells[1 + 2 * k] / 2)} %`);
        output.textContent = row ? `${a} → ${b}: ${parts.join(", ")}; ${thousands(row.cells[0])} sentence pairs`
          : `${a} → ${b}: no data`;
      };
      map.addEventListener("pointermove", show);
      map.addEventListener("click", show);
    }
  }
})();
