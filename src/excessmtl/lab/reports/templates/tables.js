// Tables that a click on a heading sorts, and chips that choose which noise levels they show.
function sortBy(table, column, ascending) {
  const body = table.tBodies[0];
  const key = (row) => row.cells[column].dataset.order;
  const rows = [...body.rows];
  rows.sort((one, two) => {
    const [a, b] = [key(one), key(two)];
    if (a === "" || b === "") return (a === "") - (b === ""); // what has no value comes last either way
    const [x, y] = [Number(a), Number(b)];
    const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    return ascending ? order : -order;
  });
  body.append(...rows);
}

function makeSortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      table.classList.remove("grouped");
      sortBy(table, column, ascending);
    });
  });
}

function toggle(chip) {
  const pressed = chip.getAttribute("aria-pressed") !== "true";
  chip.setAttribute("aria-pressed", pressed);
  return pressed;
}

function chooseNoise(article) {
  for (const chip of article.querySelectorAll(".chip[data-noise]")) {
    chip.addEventListener("click", () => {
      const shown = toggle(chip);
      for (const row of article.querySelectorAll(`tr[data-noise="${chip.dataset.noise}"]`)) row.hidden = !shown;
    });
  }
}

function chooseBeyond(chip) {
  chip.addEventListener("click", () => {
    const only = toggle(chip);
    for (const row of document.querySelectorAll("#regret-table tbody tr:not(.beyond)")) row.hidden = only;
  });
}
