// What scripts add to pages that also work without them: keys, dialogs, copying, and a stale mark.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const status = text => { document.getElementById("status").textContent = text; };
  const off = {
    get: () => { try { return localStorage.getItem("gpuaas-keys") === "off"; } catch { return false; } },
    set: value => { try { localStorage.setItem("gpuaas-keys", value ? "off" : "on"); } catch { status("This browser does not keep the choice"); } },
  };
  let go = false;
  let dialog = null;
  let asked = 0;

  // The part of another page that a dialog shows; undefined if the server does not answer.
  const sheet = async address => {
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(8000) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      return page.getElementById("sheet");
    } catch { status("The server does not answer"); }
  };

  const open = async address => {
    const content = await sheet(address);
    if (content === undefined) return;
    if (!content) { location.assign(address); return; }
    if (!dialog) {
      dialog = document.body.appendChild(document.createElement("dialog"));
      dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
    }
    dialog.setAttribute("aria-label", content.dataset.label);
    dialog.replaceChildren(content);
    if (!dialog.open) dialog.showModal();
    showSwitch(dialog);
    const field = dialog.querySelector("input[name=q]");
    if (field) field.focus();
  };

  // One request for a pause of typing; an answer that is older than another one is dropped.
  document.addEventListener("input", event => {
    const field = event.target.closest("#sheet input[name=q]");
    if (!field) return;
    const mine = ++asked;
    setTimeout(async () => {
      if (mine !== asked) return;
      const found = await sheet("/palette?q=" + encodeURIComponent(field.value));
      const [shown, fresh] = [document.getElementById("results"), found && found.querySelector("#results")];
      if (mine === asked && shown && fresh) shown.replaceWith(fresh);
    }, 150);
  });

  // Steps through links or rows, from the one that has the focus.
  const step = (items, by) => {
    const at = items.findIndex(item => item.contains(document.activeElement));
    const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : at + by];
    if (!next) return;
    const target = next.matches("a") ? next : next.querySelector("a") || next;
    if (target === next && !next.matches("a")) next.tabIndex = -1;
    target.focus();
  };

  const inField = target => target.closest("input, textarea, select");

  const inPalette = event => {
    if (!event.target.closest("#sheet")) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      step(all("#results a"), event.key === "ArrowDown" ? 1 : -1);
      return true;
    }
    if (event.key !== "Enter" || event.target.name !== "q") return false;
    const first = document.querySelector("#results a");
    if (first) { event.preventDefault(); first.click(); }
    return true;
  };

  document.addEventListener("keydown", event => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      open("/palette");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || inPalette(event)) return;
    if (inField(event.target) || off.get() || (dialog && dialog.open)) return;
    const after = go;
    go = event.key === "g";
    if (after) {
      press(event, "nav [data-key]");
    } else if (event.key === "/") {
      event.preventDefault();
      (document.getElementById("filter") || document.getElementById("find")).focus();
    } else if (event.key === "?") {
      open("/keys");
    } else if (event.key === "j" || event.key === "k") {
      step(all("table.rows tbody tr"), event.key === "j" ? 1 : -1);
    } else if (event.key === "o") {
      const row = document.activeElement.closest("table.rows tr");
      if (row && row.querySelector("a")) row.querySelector("a").click();
    } else {
      press(event, "main [data-key]");
    }
  });

  // Presses the button or link that shows a key.
  const press = (event, scope) => {
    const target = all(scope).find(one => one.dataset.key === event.key);
    if (!target || target.disabled) return;
    event.preventDefault();
    if (target.form && !target.form.reportValidity()) return;
    target.click();
  };

  const showSwitch = root => {
    const box = root.querySelector("#keys-off");
    if (!box) return;
    box.checked = off.get();
    box.closest("[hidden]")?.removeAttribute("hidden");
  };
  document.addEventListener("change", event => {
    if (event.target.id === "keys-off") off.set(event.target.checked);
  });
  showSwitch(document);

  document.addEventListener("click", event => {
    const link = event.target.closest("[data-dialog]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      open(link.getAttribute("href"));
    }
    const code = event.target.closest("[data-copy]");
    if (!code || !navigator.clipboard) return;
    navigator.clipboard.writeText(code.textContent).then(() => status("Copied: " + code.textContent));
  });

  // Live while answers come, stale when they stop. While a stream says when something changed, the
  // page asks only then and every 6 s; without one (a fourth window has none) it asks at each tick.
  let heard = Date.now();
  let streamed = false;
  let changed = false;
  let tag = "";
  const isMain = element => element.id === "main";
  const follow = () => {
    const main = document.getElementById("main");
    if (!main || !main.dataset.stream) return;
    const stream = new EventSource(main.dataset.stream);
    const ask = () => { changed = true; document.getElementById("main").dispatchEvent(new Event("changed")); };
    stream.addEventListener("open", () => { streamed = true; ask(); });
    stream.addEventListener("changed", ask);
    stream.addEventListener("error", () => { streamed = false; });
  };
  document.addEventListener("htmx:config:request", event => {
    const { sourceElement, request } = event.detail.ctx;
    if (!isMain(sourceElement)) return;
    if (streamed && !changed && Date.now() - heard < 6000) { event.preventDefault(); return; }
    changed = false;
    if (tag) request.headers["If-None-Match"] = tag;
  });
  document.addEventListener("htmx:after:request", event => {
    const { sourceElement, response } = event.detail.ctx;
    if (!isMain(sourceElement) || response.status >= 400) return;
    tag = response.headers.get("etag") || "";
    heard = Date.now();
    const drawn = document.getElementById("drawn");
    const time = response.headers.get("x-as-of");
    if (drawn && time && response.status === 304) {
      drawn.setAttribute("datetime", time);
      drawn.textContent = time.slice(11, 19);
    }
    say();
  });
  const say = () => {
    const live = document.getElementById("live");
    if (!live) return;
    const seconds = Math.round((Date.now() - heard) / 1000);
    const stale = seconds > Math.max(3 * Number(live.dataset.refresh), 7) + 2;
    live.textContent = stale ? "stale " + seconds + " s" : "live";
    live.classList.toggle("stale", stale);
  };
  setInterval(say, 1000);
  say();
  follow();
})();
