// Keeps the health page fresh, and puts the cursor into the search field at "/". Without
// it everything works; the page is then fresh when it is loaded.
"use strict";
const live = document.getElementById("live");
async function refresh() {
  // Never under the hands of who fills in a form.
  if (document.hidden || live.contains(document.activeElement)) return;
  try {
    const answer = await fetch(live.dataset.live, { headers: { Accept: "text/html" } });
    live.innerHTML = await answer.text();
    live.classList.remove("stale");
  } catch {
    live.classList.add("stale");
  }
}
if (live) setInterval(refresh, 5000);
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.getElementById("q").focus();
});
