(() => {
  const strips = document.querySelector(".de-strips")
  if (!strips) return
  const names = JSON.parse(strips.dataset.cells), caption = strips.querySelector(".de-caption")
  strips.addEventListener("pointermove", (event) => {
    const strip = event.target.closest(".de-strip svg")
    if (!strip) return
    const box = strip.getBoundingClientRect()
    const i = Math.min(Math.max(Math.floor((event.clientX - box.left) / box.width * names.length), 0), names.length - 1)
    caption.textContent = names[i]
  })
  strips.addEventListener("pointerleave", () => { caption.textContent = caption.dataset.rest })
})();
