"use strict";
// The word beside the dot says whether this page still hears from the board.
const say = (word) => {
  const live = document.getElementById("live");
  if (live) { live.textContent = word; live.dataset.state = word; }
};
document.addEventListener("htmx:sse:after:connection", () => say("live"));
for (const name of ["htmx:sse:error", "htmx:sse:close"]) document.addEventListener(name, () => say("offline"));
