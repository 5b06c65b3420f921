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
