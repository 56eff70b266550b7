"use strict";
// The word beside the dot says whether this page still hears from the board.
const say = (word) => {
  const live = document.getElementById("live");
  if (live) { live.textContent = word; live.dataset.state = word; }
};
document.addEventListener("htmx:sse:after:connection", () => say("live"));
for (const name of ["htmx:sse:error", "htmx:sse:close"]) document.addEventListener(name, () => say("offline"));
// What was said to an order is not said to the next one; refused, it stays to be said again.
document.addEventListener("htmx:after:request", ({detail: {ctx}}) => {
  if (ctx.request.method === "POST" && ctx.response?.status === 200) ctx.sourceElement.closest("form")?.reset();
});
