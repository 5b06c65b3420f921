// What scripts add to pages that also work without them: keys, copying, and a stale mark.
"use strict";
(() => {
  const status = text => { document.getElementById("status").textContent = text; };
  let go = false;

  // g then a letter goes to a page; other letters press the button or link that shows them.
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) return;
    if (event.key === "/") {
      event.preventDefault();
      (document.getElementById("filter") || document.getElementById("find")).focus();
      return;
    }
    if (event.key === "g") { go = true; return; }
    const scope = go ? "nav [data-key]" : "main [data-key]";
    go = false;
    const target = [...document.querySelectorAll(scope)].find(one => one.dataset.key === event.key);
    if (!target || target.disabled) return;
    event.preventDefault();
    if (target.form && !target.form.reportValidity()) return;
    target.click();
  });

  document.addEventListener("click", event => {
    const code = event.target.closest("[data-copy]");
    if (!code || !navigator.clipboard) return;
    navigator.clipboard.writeText(code.textContent).then(() => status("Copied: " + code.textContent));
  });

  // Live while answers come, stale when they stop.
  let heard = Date.now();
  const say = () => {
    const live = document.getElementById("live");
    if (!live) return;
    const seconds = Math.round((Date.now() - heard) / 1000);
    const stale = seconds > 3 * Number(live.dataset.refresh) + 2;
    live.textContent = stale ? "stale " + seconds + " s" : "live";
    live.classList.toggle("stale", stale);
  };
  document.addEventListener("htmx:after:swap", () => { heard = Date.now(); say(); });
  setInterval(say, 1000);
  say();
})();
