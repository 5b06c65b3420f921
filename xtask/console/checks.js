// Browser tests of the console: `cargo xtask console`. Each entry of CHECKS tests one promise, and plants one fault
// that breaks it (--prove), so that no check is unable to fail.
"use strict";
const fs = require("node:fs");
const http = require("node:http");
const { chromium } = require("playwright-core");
const { given, SERVER, REASON, send, api, addToken, addSamples, listPages, stateOfLab } = require("./lab.js");
const { sleep, until, isStrict, focused, median, readForms, cookiesOf, encode, FORM } = require("./reading.js");

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
const report = { pages: [], checks: [], violations: [], skipped: [] };
let found = [];
let verdicts = 0;

// One verdict: a violation unless it holds.
const expect = (holds, page, what) => {
  verdicts += 1;
  if (!holds) found.push({ page, what });
};
let browser;
let pages = [];
let signedIn;

const signIn = async token => {
  const { path } = await api("POST", "/console/login-addresses", undefined, token);
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${SERVER}${path}`);
  const state = await context.storageState();
  await context.close();
  return state;
};

// A signed-in window. A plant changes what the server sends at some addresses.
const open = async (options, plant) => {
  const context = await browser.newContext({ storageState: signedIn, reducedMotion: "reduce", ...options });
  if (plant?.at) {
    await context.route(url => plant.at.test(url.pathname), async route => {
      const answer = await route.fetch({ maxRedirects: 0 });
      const headers = { ...answer.headers(), ...plant.headers };
      const text = await answer.text();
      await sleep(plant.delay ?? 0);
      await route.fulfill({ status: plant.status ?? answer.status(), headers, body: plant.change ? plant.change(text) : text });
    });
  }
  return context;
};

const goto = async (page, one) => {
  const answer = await page.goto(SERVER + one.path, { waitUntil: "load" });
  expect(answer.status() === one.status, one.path, `status ${answer.status()}: expected ${one.status}`);
  return answer;
};

// Closed details hide what they hold from every check.
const openDetails = page => page.evaluate(() => { for (const one of document.querySelectorAll("details")) one.open = true; });

const eachPage = async (options, plant, visit) => {
  const context = await open(options, plant);
  const page = await context.newPage();
  for (const one of plant ? pages.slice(0, 2) : pages) {
    await goto(page, one);
    await visit(page, one);
  }
  await context.close();
};

const runAxe = async (page, at) => {
  await page.evaluate(AXE);
  const result = await page.evaluate(tags => window.axe.run(document, {
    runOnly: { type: "tag", values: tags }, resultTypes: ["violations"],
  }), AXE_TAGS);
  verdicts += result.passes.length;
  for (const rule of result.violations) {
    const nodes = rule.nodes.map(node => `${node.target.join(" ")} ${node.html}`.slice(0, 300));
    expect(false, at, `${rule.id}: ${rule.help}: ${nodes.length} elements, such as ${nodes.slice(0, 2).join(" | ")}`);
  }
};

const accessible = async plant => {
  for (const colorScheme of ["light", "dark"]) {
    await eachPage({ colorScheme }, plant, async (page, one) => {
      await openDetails(page);
      await runAxe(page, `${one.path} ${colorScheme}`);
    });
    const context = await open({ colorScheme }, plant);
    const page = await context.newPage();
    await page.goto(`${SERVER}/nodes`);
    for (const [key, name] of [["?", "keys"], ["Control+k", "palette"]]) {
      await page.keyboard.press(key);
      await page.waitForSelector("dialog[open] #sheet");
      await runAxe(page, `/nodes ${colorScheme} with the ${name} open`);
      await page.keyboard.press("Escape");
    }
    await context.close();
  }
};

const policy = async plant => {
  for (const colorScheme of ["light", "dark"]) {
    const context = await open({ colorScheme }, plant);
    await context.addInitScript(() => {
      window.reports = [];
      document.addEventListener("securitypolicyviolation", event =>
        window.reports.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
    });
    const page = await context.newPage();
    let at = "";
    page.on("pageerror", error => expect(false, at, `error in a script: ${error.message}`));
    page.on("console", message => {
      const isStatus = /Failed to load resource: the server responded with a status of 404/.test(message.text());
      if (message.type() === "error" && !isStatus) expect(false, at, `console: ${message.text()}`);
    });
    page.on("response", answer => {
      const header = answer.headers()["content-security-policy"];
      expect(isStrict(header), at, `policy of ${new URL(answer.url()).pathname}: ${header}`);
    });
    for (const one of plant ? pages.slice(0, 2) : pages) {
      at = one.path;
      await goto(page, one);
      // Long enough for one refresh: htmx swaps under the policy as well.
      await page.waitForTimeout(one.path === "/nodes" ? 2600 : 100);
      const reports = await page.evaluate(() => window.reports);
      expect(reports.length === 0, at, `policy reports: ${reports.join(", ")}`);
      const inline = await page.evaluate(() =>
        document.querySelectorAll("[style], style, script:not([src]), [onclick], [onload], [onsubmit]").length);
      expect(inline === 0, at, `${inline} inline styles or scripts`);
    }
    await context.close();
  }
};

const withoutScripts = plant => eachPage({ javaScriptEnabled: false }, plant, async (page, one) => {
  const headings = await page.locator("h1").allTextContents();
  expect(headings.length === 1, one.path, `${headings.length} headings h1: ${headings.join(", ")}`);
  for (const form of await page.locator("form").all()) {
    const name = await form.evaluate(form => form.getAttribute("action") || form.id || form.className);
    const buttons = await form.locator("button[type=submit], button:not([type]), input[type=submit]").count();
    expect(buttons > 0, one.path, `form ${name} has no submit button`);
  }
  const dead = await page.evaluate(() => [...document.querySelectorAll("a")].filter(a => !a.getAttribute("href")).map(a => a.outerHTML));
  expect(dead.length === 0, one.path, `links without an address: ${dead.join(" ")}`);
});

// 1280 pixels at 200 % are 640 CSS pixels of two device pixels each.
const WINDOWS = [
  { name: "320 px", viewport: { width: 320, height: 640 }, deviceScaleFactor: 1 },
  { name: "200 % zoom", viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 },
];

const narrow = async plant => {
  for (const { name, ...options } of WINDOWS) {
    await eachPage(options, plant, async (page, one) => {
      await openDetails(page);
      const { width, window: inner, outside } = await page.evaluate(() => {
        const root = document.documentElement;
        const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
        const inRegion = element => { for (let at = element.parentElement; at && at !== document.body; at = at.parentElement) if (scrolls(at)) return true; return false; };
        const cut = box => box.width > 1 && box.right > root.clientWidth + 1;
        const elements = [...document.querySelectorAll("body *")]
          .filter(element => cut(element.getBoundingClientRect()) && !inRegion(element)).map(element => element.outerHTML);
        // A long word reaches out of an element that does not.
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const range = document.createRange();
        while (texts.nextNode()) {
          range.selectNodeContents(texts.currentNode);
          if ([...range.getClientRects()].some(cut) && !inRegion(texts.currentNode)) elements.push(texts.currentNode.textContent);
        }
        return { width: root.scrollWidth, window: root.clientWidth, outside: elements.map(text => text.slice(0, 120)) };
      });
      const isWhole = width <= inner && outside.length === 0;
      expect(isWhole, one.path, `${name}: ${width} px wide in a window of ${inner}: ${outside.slice(-2).join(" | ")}`);
      const lost = await page.evaluate(() => [...document.querySelectorAll("h1, nav a, button")].filter(element => {
        const box = element.getBoundingClientRect();
        return box.right <= 0 || box.width === 0 || getComputedStyle(element).visibility === "hidden";
      }).map(element => element.outerHTML.slice(0, 120)));
      expect(lost.length === 0, one.path, `${name}: not shown: ${lost.slice(0, 2).join(" | ")}`);
    });
    const context = await open(options, plant);
    const page = await context.newPage();
    await page.goto(`${SERVER}/nodes`);
    for (const key of ["?", "Control+k"]) {
      await page.keyboard.press(key);
      const dialog = page.locator("dialog[open]:has(#sheet)");
      const [width, inner] = await dialog.evaluate(dialog => [dialog.scrollWidth, dialog.clientWidth]);
      expect(width <= inner, "/nodes", `${name}: the dialog of ${key} is ${width} px wide, and shows ${inner}`);
      await page.keyboard.press("Escape");
    }
    await context.close();
  }
};

const tabThrough = async (page, at) => {
  // A refresh may bring rows, but keeps what has the focus.
  const before = await page.evaluate(() => {
    const all = [...document.querySelectorAll("a[href], button:not(:disabled), input:not([type=hidden]):not(:disabled), select, textarea, summary, [tabindex='0']")];
    return all.filter(element => element.checkVisibility({ visibilityProperty: true })).length;
  });
  let stops = 0;
  let ended = false;
  for (let press = 0; press < before + 20 && !ended; press += 1) {
    await page.keyboard.press("Tab");
    const now = await focused(page);
    // Behind the last one Tab leaves the page, and comes back to the first.
    if (now === null) continue;
    ended = !now.isNew;
    if (ended) break;
    stops += 1;
    expect(now.ring, at, `no focus ring: ${now.html}`);
    expect(now.seen, at, `the focus is hidden: ${now.html}`);
  }
  expect(ended, at, "Tab never comes back to the start");
  const missed = await page.evaluate(() => {
    const all = [...document.querySelectorAll("a[href], button:not(:disabled), input:not([type=hidden]):not(:disabled), select, textarea, summary, [tabindex='0']")];
    return all.filter(element => element.checkVisibility({ visibilityProperty: true }) && !element.dataset.tabbed).map(element => element.outerHTML.slice(0, 140));
  });
  expect(missed.length === 0, at, `Tab stops at ${stops} of ${before}, and never at: ${missed.slice(0, 2).join(" | ")}`);
};

const keyboard = async plant => {
  await eachPage({}, plant, async (page, one) => {
    await openDetails(page);
    // Those that the server refreshes would change while Tab goes through them.
    await page.evaluate(() => { const main = document.querySelector("main"); if (window.htmx && main) main.replaceWith(main.cloneNode(true)); });
    await page.evaluate(() => { document.activeElement.blur(); window.scrollTo(0, 0); });
    await tabThrough(page, one.path);
  });
  const context = await open({}, plant);
  const page = await context.newPage();
  const start = async () => { await page.goto(`${SERVER}/nodes`); };
  const sheet = name => page.waitForSelector(`dialog[open][aria-label="${name}"] #sheet`, { timeout: 3000 }).then(() => true, () => false);
  const goes = path => page.waitForURL(url => url.pathname === path, { timeout: 3000 }).then(() => true, () => false);
  await start();
  await page.focus("header .brand");
  await page.keyboard.press("?");
  expect(await sheet("Keys"), "/nodes", "`?` does not open the sheet of keys");
  await page.keyboard.press("Escape");
  expect(await page.locator("dialog[open]").count() === 0, "/nodes", "Escape does not close the sheet");
  const back = await page.evaluate(() => document.activeElement.className);
  expect(back === "brand", "/nodes", `the focus is not back after the sheet, but on ${back}`);
  await page.keyboard.press("Control+k");
  expect(await sheet("Palette"), "/nodes", "Ctrl-K does not open the palette");
  const inField = await page.evaluate(() => document.activeElement.name === "q" && Boolean(document.activeElement.closest("dialog")));
  expect(inField, "/nodes", "the palette does not have the focus");
  await page.keyboard.type("batches");
  await until(3, () => page.evaluate(() => document.querySelector("dialog #results a")?.getAttribute("href") === "/batches"));
  await page.keyboard.press("Enter");
  expect(await goes("/batches"), "/nodes", "Enter in the palette does not open what was found");
  for (const one of plant ? pages.slice(1, 2) : pages.filter(page => page.key)) {
    await page.goto(`${SERVER}${one.path === "/nodes" ? "/runs" : "/nodes"}`);
    await page.keyboard.press("g");
    await page.keyboard.press(one.key);
    expect(await goes(one.path), one.path, `g ${one.key} does not open it`);
  }
  // Single keys can be switched off, and the choice stays.
  await start();
  await page.keyboard.press("?");
  await sheet("Keys");
  await page.check("dialog #keys-off");
  await start();
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await page.waitForTimeout(500);
  expect(new URL(page.url()).pathname === "/nodes", "/nodes", "keys act although they are switched off");
  await context.close();
};

// A change appears at once, and neither focus nor scroll position moves.
const live = async plant => {
  const context = await open({}, plant);
  const page = await context.newPage();
  const [node] = (await api("GET", "/api/v1/nodes?limit=1")).items;
  const at = `/nodes/${node.hostname}`;
  await page.goto(SERVER + at);
  await page.waitForTimeout(1500);
  await page.locator("main a").last().focus();
  await page.evaluate(() => { window.marked = document.activeElement; window.markedAt = window.scrollY; });
  const took = [];
  for (const number of [1, 2, 3, 4, 5]) {
    const reason = `live-${number}-${Date.now()}`;
    await api("PATCH", `/api/v1/nodes/${node.hostname}`, { bmc_user: `live-${number}`, actor: "browser", reason });
    const begun = Date.now();
    const isShown = await until(12, async () => (await page.locator("main").textContent()).includes(reason));
    expect(isShown, at, "a change does not appear");
    took.push(Date.now() - begun);
  }
  expect(median(took) <= 1500, at, `a change appeared after ${took.join(", ")} ms`);
  const [hasFocus, moved] = await page.evaluate(() => [document.activeElement === window.marked, window.scrollY - window.markedAt]);
  expect(hasFocus && moved === 0, at, `the focus is ${hasFocus ? "kept" : "lost"}, and the page scrolled by ${moved} px`);
  await context.close();
};

const twentyTabs = async plant => {
  const context = await open({}, plant);
  const names = [0, 1, 2].map(number => `revoked-${number}-${Date.now()}`);
  for (const name of names) await addToken(name);
  const tabs = await Promise.all(Array.from({ length: 20 }, () => context.newPage()));
  const live = pages.filter(page => page.key);
  const wanted = tabs.map((_, number) => live[number % live.length]);
  await Promise.all(tabs.map(async (tab, number) => {
    const answer = await tab.goto(SERVER + wanted[number].path, { timeout: 30000 }).catch(error => ({ status: () => error.message }));
    expect(answer.status() === 200, wanted[number].path, `tab ${number + 1}: ${answer.status()}`);
  }));
  const protocol = await tabs[0].evaluate(() => performance.getEntriesByType("navigation")[0].nextHopProtocol);
  expect(protocol === "http/1.1", "/nodes", `the protocol is ${protocol}: expected http/1.1`);
  // Three hold a stream and request again after 6 s at most; the others do after 2 s or 15 s.
  const drawn = tab => tab.locator(".as-of time").getAttribute("datetime");
  const before = await Promise.all(tabs.map(drawn));
  await Promise.all(tabs.map(async (tab, number) => {
    const isLive = await until(25, async () => await drawn(tab) !== before[number] && await tab.locator("#live").textContent() === "live");
    expect(isLive, wanted[number].path, `tab ${number + 1} is not drawn again`);
  }));
  const last = tabs[19];
  const took = [];
  for (const name of names) {
    await last.bringToFront();
    await last.goto(`${SERVER}/tokens`);
    const row = last.locator("#table-tokens tbody tr", { has: last.getByRole("rowheader", { name, exact: true }) });
    await row.locator("summary").click();
    await row.locator("input[name=reason]").fill(REASON);
    await row.locator("input[name=confirm]").fill(name);
    const loaded = last.waitForEvent("load");
    const begun = Date.now();
    const [answer] = await Promise.all([
      last.waitForResponse(answer => answer.request().method() === "POST", { timeout: 30000 }),
      row.locator("button[type=submit]").click({ noWaitAfter: true }),
    ]);
    took.push(Date.now() - begun);
    expect(answer.status() === 303, "/tokens", `the action in the last tab: ${answer.status()}`);
    await loaded;
  }
  const tokens = (await api("GET", "/api/v1/tokens")).items;
  expect(names.every(name => tokens.find(token => token.name === name).revoked_at), "/tokens", "a token is not revoked");
  expect(median(took) <= 1000, "/tokens", `the action in the last of 20 tabs took ${took.join(", ")} ms`);
  await context.close();
};

// A viewer reads what the role may read, without a dead end, and changes nothing.
const viewer = async plant => {
  const ofAdmin = new Map();
  const admin = await open({ javaScriptEnabled: false });
  const page = await admin.newPage();
  for (const one of pages) {
    await page.goto(SERVER + one.path);
    for (const { path, fields } of await readForms(page)) if (!/^\/(logout|login)/.test(path)) ofAdmin.set(path, fields);
  }
  await admin.close();
  expect(ofAdmin.size >= 8, "all", `only ${ofAdmin.size} forms were found`);
  const { token } = await addToken(`viewer-${Date.now()}`);
  const storageState = plant?.asAdmin ? signedIn : await signIn(token);
  for (const colorScheme of ["light", "dark"]) {
    const context = await open({ storageState, colorScheme }, plant);
    const page = await context.newPage();
    for (const one of plant ? pages.slice(0, 2) : pages) {
      const answer = await page.goto(SERVER + one.path, { waitUntil: "load" });
      const isRefused = answer.status() === 403;
      expect(isRefused || answer.status() === one.status, one.path, `status ${answer.status()} for a viewer`);
      if (isRefused) {
        const text = await page.locator("main").textContent();
        expect(/forbidden/.test(text), one.path, "a refused page does not say why");
      }
      await openDetails(page);
      await runAxe(page, `${one.path} ${colorScheme} viewer`);
      for (const { path, isDisabled } of await readForms(page)) {
        expect(isDisabled || !ofAdmin.has(path), one.path, `a viewer can press the button of ${path}`);
      }
      const silent = await page.evaluate(() => [...document.querySelectorAll("button:disabled")]
        .filter(button => !button.title).map(button => button.outerHTML.slice(0, 140)));
      expect(silent.length === 0, one.path, `disabled without a reason: ${silent.join(" ")}`);
    }
    await context.close();
  }
  if (plant) return;
  const context = await open({ storageState });
  const headers = { cookie: await cookiesOf(context), origin: SERVER, host: new URL(SERVER).host, ...FORM };
  const before = await stateOfLab();
  for (const [path, fields] of ofAdmin) {
    const answer = await send("POST", path, headers, encode(fields));
    expect(answer.status === 403 && !answer.text.includes("foreign_origin"), path, `a viewer's form: ${answer.status}`);
  }
  expect(await stateOfLab() === before, "all", "a viewer's form changed something");
  await context.close();
};

const foreignForms = async plant => {
  const context = await open({ javaScriptEnabled: false });
  const page = await context.newPage();
  const cookies = await cookiesOf(context);
  const forms = new Map();
  for (const one of pages) {
    await page.goto(SERVER + one.path);
    for (const { path, fields } of await readForms(page)) forms.set(path, fields);
  }
  expect(forms.size >= 8, "all", `only ${forms.size} forms were found: ${[...forms.keys()].join(", ")}`);
  const own = { origin: SERVER, host: new URL(SERVER).host };
  const strangers = plant ? [["own page", own]] : [
    ["foreign origin", { origin: "http://evil.example", "sec-fetch-site": "cross-site" }],
    ["cross-site with the own Origin", { ...own, "sec-fetch-site": "cross-site" }],
    ["same site, another port", { origin: "http://127.0.0.1:1", "sec-fetch-site": "same-site" }],
    ["foreign Origin alone", { origin: "http://evil.example" }],
    ["no Origin", {}], ["Origin null", { origin: "null" }], ["typed address", { "sec-fetch-site": "none" }],
  ];
  const state = async () => JSON.stringify([
    (await api("GET", "/api/v1/audit?limit=50")).items.filter(entry => entry.actor === "admin").map(entry => entry.id),
    (await api("GET", "/api/v1/nodes")).items.map(node => node.hostname),
    (await api("GET", "/api/v1/tokens")).items,
  ]);
  // The lab's own entries would count as changes.
  await sleep(1000);
  const before = await state();
  for (const [path, fields] of forms) {
    const body = encode(fields);
    for (const [name, headers] of strangers) {
      const answer = await send("POST", path, { cookie: cookies, ...FORM, ...headers }, body);
      expect(answer.status === 403 && answer.text.includes("foreign_origin"), path, `${name}: ${answer.status}`);
      expect(!answer.headers["set-cookie"], path, `${name}: a cookie is set or ended`);
      expect(isStrict(answer.headers["content-security-policy"]), path, `${name}: the refusal has no strict policy`);
    }
  }
  // A browser that has the session, on a page of another port: cookies of the same site are sent along.
  const fields = forms.get("/onboard").map(field => `<input name="${field.name}" value="${valueOf(field)}">`).join("");
  const other = http.createServer((_, answer) => answer
    .setHeader("content-type", "text/html").end(`<form method="post" action="${plant ? "" : SERVER}/onboard">${fields}<button>Send</button></form>`));
  await new Promise(done => other.listen(0, "127.0.0.1", done));
  await page.goto(`http://127.0.0.1:${other.address().port}/`);
  const [sent] = await Promise.all([page.waitForResponse(answer => answer.request().method() === "POST"), page.click("button")]);
  const carried = Boolean((await sent.request().allHeaders()).cookie);
  expect(carried && sent.status() === 403, "/onboard", `a browser's form from another port: ${sent.status()}, cookie sent: ${carried}`);
  other.close();
  expect(await state() === before, "all", "a refused form changed something");
  // The same request from the own page gets past the check: the refusals have that one reason.
  const answer = await send("POST", "/onboard", { cookie: cookies, ...FORM, ...own }, "hostname=");
  expect(!answer.text.includes("foreign_origin"), "/onboard", "a form of the own page is refused as foreign");
  await context.close();
};

const stale = async plant => {
  const context = await open({}, plant);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", error => errors.push(error.message));
  const says = () => page.locator("#live").textContent();
  const stands = async when => {
    const heading = await page.locator("h1").allTextContents();
    expect(heading.length === 1 && heading[0] === "Fleet", "/nodes", `${when}: the page shows ${heading.join(", ") || "no heading"}`);
    const rows = await page.locator("#table-nodes tbody tr").count();
    expect(rows > 0, "/nodes", `${when}: the rows are gone`);
    const moves = await page.evaluate(() => document.getAnimations().length + document.querySelectorAll("[aria-busy=true], progress").length);
    expect(moves === 0, "/nodes", `${when}: ${moves} things spin`);
  };
  const becomesStale = async when => {
    const is = await until(15, async () => /^stale \d+ s$/.test(await says()));
    expect(is, "/nodes", `${when}: the page says ${await says()}`);
    const age = async () => Number((await says()).match(/\d+/)?.[0]);
    const first = await age();
    expect(await until(5, async () => await age() > first), "/nodes", `${when}: the age does not grow`);
    await stands(when);
  };
  await page.goto(`${SERVER}/nodes`);
  await page.waitForTimeout(3000);
  expect(await says() === "live", "/nodes", `it says ${await says()} at first`);
  process.kill(given.lab, "SIGSTOP");
  await becomesStale("stopped");
  await page.keyboard.press("Control+k");
  const told = await until(12, async () => (await page.locator("#status").textContent()) !== "");
  expect(told, "/nodes", "stopped: Ctrl-K neither opens the palette nor says why");
  process.kill(given.lab, "SIGCONT");
  expect(await until(15, async () => await says() === "live"), "/nodes", `continued: the page says ${await says()}`);
  await stands("continued");
  process.kill(given.lab, "SIGKILL");
  await becomesStale("killed");
  await page.keyboard.press("?");
  const why = await until(12, async () => (await page.locator("#status").textContent()) !== "");
  expect(why, "/nodes", "killed: `?` neither opens the sheet nor says why");
  expect(errors.length === 0, "/nodes", `errors in scripts: ${errors.join(", ")}`);
  await context.close();
};

// Each plant breaks one promise on the first two pages, and the check has to find what `finds` says.
// The order matters: the last check ends the lab.
const PAGE = /^\/(nodes|runs)$/;
const STYLE = /console-\d+\.css$/;
const SCRIPT = /console-\d+\.js$/;
const without = text => all => all.replaceAll(text, "");
const CHECKS = {
  "accessible": {
    run: accessible,
    plants: [
      { at: PAGE, change: text => text.replace(/<label for="find">.*?<\/label>/, "").replace(/placeholder="Find[^"]*"/, ""), finds: /^label: / },
      { at: STYLE, change: text => text.replace("--quiet: #a3abb3", "--quiet: #3a3d40"), finds: /^color-contrast: / },
    ],
  },
  "policy": {
    run: policy,
    plants: [
      { at: PAGE, change: text => text.replace("<main", "<p style=\"color:red\"></p><main"), finds: /^policy reports: style-src/ },
      { at: PAGE, change: text => text.replace("<main", "<script>0</script><main"), finds: /^1 inline styles or scripts/ },
      { at: STYLE, headers: { "content-security-policy": "default-src 'self'" }, finds: /^policy of \/assets/ },
      { at: SCRIPT, change: text => `${text}; throw new Error("planted");`, finds: /^error in a script: planted/ },
    ],
  },
  "without-scripts": {
    run: withoutScripts,
    plants: [
      { at: PAGE, change: without("<button type=\"submit\">Show</button>"), finds: /^form .* has no submit button/ },
      { at: PAGE, change: text => text.replace("<main", "<h1>Second</h1><main"), finds: /^2 headings/ },
    ],
  },
  "narrow": {
    run: narrow,
    plants: [
      { at: STYLE, change: without(".scroll { overflow-x: auto; }"), finds: /^320 px: \d+ px wide/ },
      { at: STYLE, change: text => `${text} main { width: 700px; }`, finds: /^200 % zoom: \d+ px wide/ },
      { at: STYLE, change: text => `${text} nav { overflow: hidden; } nav a { visibility: hidden; }`, finds: /not shown/ },
      { at: STYLE, change: text => `${text} dialog code { white-space: nowrap; }`, finds: /^320 px: the dialog of Control\+k/ },
    ],
  },
  "keyboard": {
    run: keyboard,
    plants: [
      { at: SCRIPT, change: text => text.replace("event.key === \"?\"", "event.key === \"!\""), finds: /`\?` does not open/ },
      { at: SCRIPT, change: text => text.replace("nav [data-key]", "none"), finds: /^g r does not open/ },
      { at: STYLE, change: without("outline: 2px solid var(--run);"), finds: /^no focus ring/ },
      { at: STYLE, change: text => `${text} header { position: relative; z-index: -1; } body::before { content: ""; position: fixed; inset: 0; }`, finds: /^the focus is hidden/ },
      { at: SCRIPT, change: text => `${text} document.addEventListener("focusin", event => { if (event.target.id === "find") setTimeout(() => document.querySelector(".brand").focus()); });`, finds: /never at: / },
    ],
  },
  "live": {
    run: live,
    plants: [{ at: SCRIPT, change: text => text.replace("new Event(\"changed\")", "new Event(\"other\")"), finds: /^a change appeared after/ }],
  },
  "twenty-tabs": {
    run: twentyTabs,
    plants: [
      { at: /\/revoke$/, delay: 1500, finds: /^the action in the last of 20 tabs took/ },
      { at: /^\/audit$/, status: 503, finds: /^tab \d+: 503/ },
      { at: /^\/runs$/, change: without("hx-get"), finds: /^tab \d+ is not drawn again/ },
    ],
  },
  "viewer": {
    run: viewer,
    plants: [
      { asAdmin: true, finds: /^a viewer can press the button of / },
      { at: PAGE, status: 500, finds: /^status 500 for a viewer/ },
    ],
  },
  "foreign-forms": { run: foreignForms, plants: [{ finds: /^a refused form changed something/ }] },
  "stale": {
    run: stale,
    plants: [{ at: SCRIPT, change: text => text.replace("const stale = seconds", "const stale = seconds < 0 && seconds"), finds: /^stopped: the page says live/ }],
  },
};

const main = async () => {
  const unknown = given.only.filter(name => !CHECKS[name]);
  if (unknown.length > 0) throw new Error(`no such check: ${unknown.join(", ")}; there are ${Object.keys(CHECKS).join(", ")}`);
  browser = await chromium.launch({ executablePath: given.browser, args: ["--disable-gpu"] });
  signedIn = await signIn();
  await addSamples();
  pages = await listPages();
  report.pages = pages.map(page => page.path);
  for (const page of pages.filter(page => page.path.includes("{"))) report.skipped.push({ page: page.path, why: "the lab has none" });
  pages = pages.filter(page => !page.path.includes("{"));
  for (const [name, { run, plants }] of Object.entries(CHECKS)) {
    if (given.only.length > 0 && !given.only.includes(name)) continue;
    const begun = Date.now();
    verdicts = 0;
    for (const plant of given.prove ? plants : [null]) {
      found = [];
      await run(plant).catch(error => expect(false, "all", error.stack));
      const proof = plant && found.find(one => plant.finds.test(one.what));
      if (proof) {
        process.stderr.write(`${name} finds a planted fault: ${proof.page}: ${proof.what}\n`);
      } else if (plant) {
        report.violations.push({ check: name, pages: ["all"], what: `does not find the planted fault ${plant.finds}, but ${JSON.stringify(found)}` });
      } else {
        if (verdicts === 0) expect(false, "all", "nothing was checked");
        // One entry for what is the same on many pages.
        for (const what of new Set(found.map(one => one.what))) {
          report.violations.push({ check: name, what, pages: [...new Set(found.filter(one => one.what === what).map(one => one.page))] });
        }
      }
    }
    const seconds = Math.round((Date.now() - begun) / 1000);
    report.checks.push({ name, verdicts, seconds });
    process.stderr.write(`${name}: ${verdicts} verdicts, ${given.prove ? plants.length : 0} planted faults, ${seconds} s\n`);
  }
  await browser.close();
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  process.exitCode = report.violations.length > 0 ? 1 : 0;
};

main().catch(error => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(2);
});
