// Sorting and filtering of the tables. Without it they are still whole, in their first order.
const boards = [...document.querySelectorAll("table.board")];

for (const table of boards) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  for (const head of table.querySelectorAll("th[data-sort]")) {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.ariaSort === "ascending";
      for (const other of table.querySelectorAll("th[data-sort]")) other.ariaSort = "none";
      head.ariaSort = descending ? "descending" : "ascending";
      const numbers = head.dataset.sort === "number";
      const place = head.cellIndex;
      const key = (row) => row.cells[place].dataset.order ?? "";
      rows.sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        // Rows without a value come last either way.
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = numbers ? a - b : a.localeCompare(b, undefined, { numeric: true });
        return descending ? -order : order;
      });
      body.append(...rows);
    });
  }
}

const box = document.getElementById("filter");
const state = document.getElementById("shown");
box.addEventListener("input", () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  let all = 0;
  for (const table of boards) {
    let here = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !words.every((word) => row.dataset.words.includes(word));
      here += !row.hidden;
      all += 1;
    }
    shown += here;
    table.closest(".group").querySelector(".board-empty").hidden = here > 0;
  }
  state.textContent = words.length ? `${shown} of ${all} rows` : "";
});
