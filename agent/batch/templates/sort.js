document.querySelectorAll("#jobs thead th").forEach((head, at) => {
  const sort = () => {
    const body = head.closest("table").tBodies[0];
    const up = head.ariaSort !== "ascending";
    const key = (row) => row.cells[at].dataset.by ?? row.cells[at].textContent.trim();
    const order = new Intl.Collator(undefined, { numeric: true }).compare;
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x !== "" && y !== "" && !isNaN(x) && !isNaN(y) ? x - y : order(x, y)) * (up ? 1 : -1);
    });
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.ariaSort = up ? "ascending" : "descending";
    body.append(...rows);
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
});
