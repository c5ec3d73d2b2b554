// Puts on the colours that were chosen, before anything is painted. A classic script for the head of each page.
try {
  document.documentElement.dataset.theme = localStorage.getItem("treadle.theme") ?? "auto";
} catch {
  // A browser that allows no storage has the colours of its system.
}
