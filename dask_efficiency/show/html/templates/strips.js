(() => {
  const strips = document.querySelector(".de-strips")
  if (!strips) return
  const names = JSON.parse(strips.dataset.cells), said = strips.querySelector(".de-said")
  strips.addEventListener("pointermove", (event) => {
    const strip = event.target.closest(".de-strip svg")
    if (!strip) return
    const box = strip.getBoundingClientRect()
    const i = Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * names.length), 0), names.length - 1)
    said.textContent = names[i]
  })
  strips.addEventListener("pointerleave", () => { said.textContent = said.dataset.rest })
})();
