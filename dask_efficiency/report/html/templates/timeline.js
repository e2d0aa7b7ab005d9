(() => {
  const figure = document.querySelector(".de-timeline"), held = document.getElementById("data")
  if (!figure || !held) return
  const {bin_seconds, seconds, threads} = JSON.parse(held.textContent).timeline
  const said = figure.querySelector(".de-said"), line = figure.querySelector(".de-at")
  const bins = Math.ceil(seconds / bin_seconds)
  const time = (at) => at.toFixed(seconds < 10 ? 2 : 1) + " s"
  figure.addEventListener("pointermove", (event) => {
    const box = figure.querySelector("svg").getBoundingClientRect()
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)
    const i = Math.min(Math.floor(share * seconds / bin_seconds), bins - 1)
    const now = Object.entries(threads).map(([name, row]) => [row[i], name]).filter(([n]) => n > 0)
    said.textContent = time(i * bin_seconds) + " to " + time(Math.min((i + 1) * bin_seconds, seconds)) + ", threads: "
      + now.sort((a, b) => b[0] - a[0]).map(([n, name]) => name + " " + n).join(", ")
    line.setAttribute("x1", 100 * share + "%")
    line.setAttribute("x2", 100 * share + "%")
    line.setAttribute("visibility", "visible")
  })
  figure.addEventListener("pointerleave", () => {
    line.setAttribute("visibility", "hidden")
    said.textContent = said.dataset.rest
  })
})();
