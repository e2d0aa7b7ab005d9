(() => {
  const figure = document.querySelector(".de-flames")
  if (!figure) return
  const picture = figure.querySelector("svg"), caption = figure.querySelector(".de-caption")
  const boxes = [...picture.querySelectorAll("svg")].map((shape) => ({
    shape,
    left: parseFloat(shape.getAttribute("x")),
    width: parseFloat(shape.getAttribute("width")),
    top: parseFloat(shape.getAttribute("y")),
    hint: shape.querySelector("title").textContent,
  }))
  const name = (box) => box.hint.slice(0, box.hint.lastIndexOf(" | "))
  const slack = 0.002
  const under = (inner, outer) =>
    inner.left >= outer.left - slack && inner.left + inner.width <= outer.left + outer.width + slack
  const write = (box) => {
    if (box.shape.querySelector("text")) return
    const text = document.createElementNS("http://www.w3.org/2000/svg", "text")
    text.setAttribute("x", 3)
    text.setAttribute("y", 12)
    text.textContent = name(box)
    box.shape.append(text)
  }
  const zoom = (to) => {
    for (const box of boxes) {
      const around = box.top < to.top && under(to, box)
      const shown = around || (box.top >= to.top && under(box, to))
      const width = around ? 100 : 100 * box.width / to.width
      box.shape.setAttribute("display", shown ? "inline" : "none")
      box.shape.setAttribute("x", (around ? 0 : 100 * (box.left - to.left) / to.width) + "%")
      box.shape.setAttribute("width", width + "%")
      if (shown && width > 1.5) write(box)
    }
  }
  const pointed = (event) => boxes.find((box) => box.shape === event.target.closest(".de-flames svg svg"))
  picture.addEventListener("click", (event) => zoom(pointed(event) ?? boxes[0]))
  const search = document.createElement("input")
  search.type = "search"
  search.placeholder = "Search a function, file or prefix"
  search.setAttribute("aria-label", search.placeholder)
  const rest = () => { caption.textContent = search.value ? found() : caption.dataset.rest }
  const found = () => {
    const wanted = search.value.toLowerCase()
    let share = 0, until = -1
    for (const box of boxes) {
      const matches = name(box).toLowerCase().includes(wanted)
      box.shape.classList.toggle("de-other", Boolean(wanted) && !matches)
      if (matches && box.left >= until - slack) {
        share += box.width
        until = box.left + box.width
      }
    }
    return "Matches hold " + share.toFixed(1) + " % of the time."
  }
  search.addEventListener("input", () => { found(); rest() })
  figure.prepend(search)
  picture.addEventListener("pointermove", (event) => { caption.textContent = pointed(event)?.hint ?? caption.dataset.rest })
  picture.addEventListener("pointerleave", rest)
  addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(boxes[0]) })
})();
