(() => {
  const figure = document.querySelector(".de-timeline"), held = document.getElementById("data")
  if (!figure || !held) return
  const {bin_seconds, seconds, threads, causes} = JSON.parse(held.textContent).timeline
  const caption = figure.querySelector(".de-caption"), line = figure.querySelector(".de-at")
  const bins = Math.ceil(seconds / bin_seconds)
  const time = (at) => at.toFixed(seconds < 10 ? 2 : 1) + " s"
  const largest = (rows, i) =>
    Object.entries(rows).map(([name, row]) => [row[i], name]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0])
  const why = (activity, i) => {
    const own = Object.entries(causes).filter(([name]) => name.startsWith(activity + "/"))
    const known = largest(Object.fromEntries(own.map(([name, row]) => [name.slice(activity.length + 1), row])), i)
    return known.length ? " (" + known.map(([n, name]) => name + " " + n).join(", ") + ")" : ""
  }
  figure.addEventListener("pointermove", (event) => {
    const box = figure.querySelector("svg").getBoundingClientRect()
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)
    const i = Math.min(Math.floor(share * seconds / bin_seconds), bins - 1)
    caption.textContent = time(i * bin_seconds) + " to " + time(Math.min((i + 1) * bin_seconds, seconds)) + ", threads: "
      + largest(threads, i).map(([n, name]) => name + " " + n + why(name, i)).join(", ")
    line.setAttribute("x1", 100 * share + "%")
    line.setAttribute("x2", 100 * share + "%")
    line.setAttribute("visibility", "visible")
  })
  figure.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden")
    caption.textContent = caption.dataset.rest
  })
})();
