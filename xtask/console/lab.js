// The lab that the browser tests run against: its API, what is added to it, and the pages that it has.
"use strict";
const fs = require("node:fs");
const http = require("node:http");

const given = JSON.parse(process.argv[2]);
const SERVER = given.server;
const TOKEN = fs.readFileSync(given.token_file, "utf8").trim();
const REASON = "cargo xtask console";

// A request with exactly these headers: fetch would add its own.
const send = (method, path, headers = {}, body = "") => new Promise((done, failed) => {
  const request = http.request(SERVER + path, { method, headers: { ...headers, "content-length": Buffer.byteLength(body) } }, answer => {
    let text = "";
    answer.setEncoding("utf8").on("data", part => { text += part; });
    answer.on("end", () => done({ status: answer.statusCode, headers: answer.headers, text }));
  });
  request.on("error", failed).end(body);
});

const api = async (method, path, body, token = TOKEN) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await send(method, path, headers, body ? JSON.stringify(body) : "");
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return answer.text ? JSON.parse(answer.text) : null;
};

const add = (path, body) => api("POST", path, body);

const addToken = name =>
  add("/api/v1/tokens", { name, grants: [{ role: "viewer" }], expires_in_seconds: 315360000, reason: REASON });

// What the lab lacks, so that the pages of it have something to show.
const addSamples = async () => {
  const has = (await api("GET", "/api/v1/batches")).items.length > 0;
  if (has) return;
  const digit = text => text.repeat(64);
  const run = (host, seconds) => ({ host, time_to_active: seconds, buckets: { deploy: seconds / 2 } });
  const arm = (image, digest, runs) =>
    ({ image, digest, runs, conditions: { class: "h200", profile: "h200-slice-vm", maas_version: "3.7.3" } });
  await add("/api/v1/experiments/import", {
    name: "browser-tests", site: "lab", reason: REASON,
    arms: [
      arm("ubuntu/noble", digit("a"), [run("a1", 700), run("a2", 720), run("a3", 690)]),
      arm("custom/new", digit("b"), [run("b1", 640), run("b2", 655), { ...run("b3", 0), failed: true, failure_class: "image" }]),
    ],
  });
  await add("/api/v1/images", { name: "custom/new", site: "lab", state: "built", sha256: digit("b"), parents: [digit("a")] });
  await add("/api/v1/batches", {
    spec: { name: "browser-tests", site: "lab", profile: "h200-slice-vm", machines: [{ hostname: "no-such-machine" }] },
  });
  await addToken("browser-tests");
};

// Every page of the map with parameters of the lab, and pages in the states that the map does not name.
const listPages = async () => {
  const first = async path => (await api("GET", path)).items[0];
  const [run, image] = [await first("/api/v1/runs"), await first("/api/v1/images?site=lab")];
  const bundle = await first("/api/v1/bundles");
  const values = {
    "{node}": "j22u11", "{run}": run.id, "{batch}": "browser-tests", "{experiment}": "browser-tests", "{site}": "lab",
    "{image}": encodeURIComponent(image.name), "{bundle}": encodeURIComponent(bundle.bundle), "{profile}": "h200-slice-vm",
  };
  const pages = given.map.map(page => {
    const path = page.path.replace(/\{\w+\}/g, name => values[name] || name);
    return { path, name: page.path, key: page.key, status: 200 };
  });
  const parked = { path: "/nodes/no-such-machine", name: "node of a batch", status: 200 };
  const more = [
    ["/login", "sign-in", 200], ["/login/once/used", "used address", 200], ["/nodes/nobody", "unknown node", 404],
    ["/runs?filter=status%3Dparked", "no rows", 200], ["/nodes?filter=color%3Dred", "filter that is wrong", 200],
    ["/palette?q=j22", "palette with results", 200], ["/runs/nothing", "unknown run", 404],
  ].map(([path, name, status]) => ({ path, name, status }));
  return [...pages, parked, ...more];
};

// What a form that was refused must not change.
const stateOfLab = async () => JSON.stringify([
  (await api("GET", "/api/v1/nodes")).items.map(node => node.hostname),
  (await api("GET", "/api/v1/tokens")).items,
  (await api("GET", "/api/v1/sites")).items,
]);

module.exports = { given, SERVER, TOKEN, REASON, send, api, addToken, addSamples, listPages, stateOfLab };
