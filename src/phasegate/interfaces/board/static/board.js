"use strict";
// The word beside the dot says whether this page still hears from the board.
const say = (word) => {
  const live = document.getElementById("live");
  if (live) { live.textContent = word; live.dataset.state = word; }
};
document.addEventListener("htmx:sse:after:connection", () => say("live"));
for (const name of ["htmx:sse:error", "htmx:sse:close"]) document.addEventListener(name, () => say("offline"));
// The badge and the title follow the number of pending decisions that the page was loaded with.
const showWaiting = () => {
  const {waiting, title} = document.getElementById("main")?.dataset ?? {};
  const badge = document.getElementById("count");
  if (!badge || waiting === undefined) return;
  badge.textContent = waiting;
  badge.hidden = waiting === "0";
  document.title = (waiting === "0" ? "" : `(${waiting}) `) + title;
};
new MutationObserver(showWaiting).observe(document.documentElement, {subtree: true, attributes: true, attributeFilter: ["data-waiting"]});
// What is said to an order goes with it, so that the next one does not get it; refused, it is back to be said again.
document.addEventListener("htmx:before:request", ({detail: {ctx}}) => {
  const box = ctx.request.method === "POST" && ctx.sourceElement.closest("form")?.elements.text;
  if (box) { ctx.said = {box, text: box.value}; box.value = ""; }
});
document.addEventListener("htmx:finally:request", ({detail: {ctx}}) => {
  if (ctx.request.method !== "POST" || ctx.said?.box.value) return;
  if (ctx.response?.status === 200) ctx.sourceElement.closest("form")?.reset();
  else if (ctx.said) ctx.said.box.value = ctx.said.text;
});
// Lines of the output that do not contain the searched text are hidden.
document.addEventListener("input", ({target}) => {
  const box = target.dataset?.search && document.getElementById(target.dataset.search);
  if (!box) return;
  const wanted = target.value.toLowerCase();
  for (const line of box.querySelectorAll("pre span")) line.hidden = !line.textContent.toLowerCase().includes(wanted);
});
