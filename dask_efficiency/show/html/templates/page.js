(() => {
  const value = (row, i) => row.cells[i].dataset.value ?? row.cells[i].textContent
  const collator = new Intl.Collator(undefined, {numeric: true})
  const compare = (a, b) => {
    const x = parseFloat(a), y = parseFloat(b)
    return isNaN(x) || isNaN(y) ? collator.compare(a, b) : x - y
  }
  const sort = (head) => {
    const descending = head.getAttribute("aria-sort") !== "descending"
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort")
    head.setAttribute("aria-sort", descending ? "descending" : "ascending")
    const body = head.closest("table").tBodies[0], i = head.cellIndex
    const rows = [...body.rows].sort((a, b) => compare(value(a, i), value(b, i)))
    body.append(...(descending ? rows.reverse() : rows))
  }
  for (const head of document.querySelectorAll("th[data-sort]")) {
    head.tabIndex = 0
    head.addEventListener("click", () => sort(head))
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(head) }
    })
  }
  let folded = []
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")]
    for (const each of folded) each.open = true
  })
  addEventListener("afterprint", () => { for (const each of folded) each.open = false })
})();
