"use strict";
// The page of a profile: draws one level at a time from the JSON beside it.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const COLOURS = ["#2f6fc4", "#b85c1e", "#1f7f74", "#7a55ad", "#b93a4b", "#6b7a1a", "#a8447f", "#5f6770"];
const HOST = { check: 7, plan: 3, write: 2, encode: 0, submit: 1, wait: 7, read: 5 };
const families = [...new Set(data.levels.flatMap((level) => level.routes.map((route) => route.family)))];
const colour = (family) => COLOURS[Math.min(Math.max(families.indexOf(family), 0), COLOURS.length - 1)];
let level = data.levels[0];

// ---- words

function duration(seconds) {
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
    if (seconds >= size) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  return `${Math.round(seconds * 1e9)} ns`;
}

function amount(number, unit) {
  for (const [prefix, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (number >= size) return `${Number((number / size).toPrecision(3))} ${prefix}${unit}`;
  return `${number} ${unit}`;
}

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const short = (op) => op.replace(/\.default$/, "");
const sum = (items, key) => items.reduce((total, item) => total + item[key], 0);

function describe(node) {
  const cost = { bytes: sum(node.items, "bytes_read") + sum(node.items, "bytes_written"), flops: sum(node.items, "flops") };
  const rows = [
    ["time", duration(node.seconds)],
    ["share", percent(node.seconds / level.gpu_seconds)],
  ];
  if (node.items.length > 1) rows.push(["dispatches", node.items.length]);
  rows.push(
    ["bytes", amount(cost.bytes, "B")],
    ["operations", amount(cost.flops, "FLOP")],
    ["bandwidth", `${(cost.bytes / node.seconds / 1e9).toFixed(2)} GB/s`],
    ["arithmetic", `${(cost.flops / node.seconds / 1e9).toFixed(2)} GFLOP/s`],
    ["of the limit", limitText(node.items, node.seconds)],
  );
  if (node.items.length === 1) {
    const [d] = node.items;
    rows.unshift(["op", short(d.op)], ["route", d.route]);
    if (data.parts.length > 1) rows.push(["part", d.part]);
    rows.push(
      ["op call", d.index],
      ["live dims", d.dims.map((dims) => `[${dims.join(", ")}]`).join(" ") || "none"],
      ["workgroups", d.grid.join(" × ")],
      ["shortest", duration(d.best)],
      ["longest", duration(d.worst)],
    );
  }
  return rows;
}

function least(d) {
  // [seconds that it takes at least, by which limit]
  const memory = (d.bytes_read + d.bytes_written) / (data.limits.read_gb_s * 1e9);
  const arithmetic = d.flops / (data.limits.fma_gflop_s * 1e9);
  const dispatch = data.limits.dispatch_us * 1e-6;
  if (Math.max(memory, arithmetic) <= dispatch) return [dispatch, "dispatch"];
  return memory >= arithmetic ? [memory, "memory"] : [arithmetic, "arithmetic"];
}

function limitText(items, seconds) {
  const by = {};
  for (const item of items) {
    const [time, kind] = least(item);
    by[kind] = (by[kind] || 0) + time;
  }
  const total = Object.values(by).reduce((a, b) => a + b, 0);
  const kind = Object.keys(by).sort((a, b) => by[b] - by[a])[0];
  return `${percent(total / seconds)} (${kind})`;
}

function details(name, rows) {
  $("details").innerHTML = "";
  const heading = $("details").appendChild(document.createElement("h3"));
  heading.textContent = name;
  const list = $("details").appendChild(document.createElement("dl"));
  for (const [term, value] of rows) {
    list.appendChild(document.createElement("dt")).textContent = term;
    list.appendChild(document.createElement("dd")).textContent = value;
  }
}

// ---- drawing

function add(parent, tag, attributes, text) {
  const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function clear(svg, width, height) {
  svg.innerHTML = "";
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.style.height = `${height}px`;
}

function mark(svg, tag, attributes, name, tip, chosen) {
  const element = add(svg, tag, { class: "mark", role: "button", "aria-label": `${name}: ${tip}`, ...attributes });
  element.addEventListener("mousemove", (event) => {
    const box = $("tip");
    box.textContent = `${name}: ${tip}`;
    box.style.display = "block";
    box.style.left = `${Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8)}px`;
    box.style.top = `${Math.min(event.clientY + 16, innerHeight - box.offsetHeight - 8)}px`;
  });
  element.addEventListener("mouseleave", () => ($("tip").style.display = "none"));
  element.addEventListener("click", () => choose(element, chosen));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(element, chosen);
  });
  return element;
}

function choose(element, chosen) {
  document.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
  element.classList.add("chosen");
  chosen();
}

const width = (svg) => Math.max(320, svg.clientWidth || 800);
const fitting = (text, room) => (room < 24 ? "" : text.length * 6.6 < room ? text : `${text.slice(0, Math.max(1, room / 6.6 - 2))}…`);

// ---- the flame: all, families, ops, routes, dispatches

function tree() {
  const node = (name, items) => ({ name, items, seconds: sum(items, "seconds"), children: [] });
  const split = (items, key) => {
    const found = new Map();
    for (const item of items) found.set(item[key], [...(found.get(item[key]) || []), item]);
    return [...found].map(([name, some]) => node(name, some)).sort((a, b) => b.seconds - a.seconds);
  };
  const root = node("all dispatches", level.dispatches);
  root.children = split(level.dispatches, "family");
  for (const family of root.children) {
    family.children = split(family.items, "op");
    for (const op of family.children) {
      op.name = short(op.name);
      op.children = split(op.items, "route");
      for (const route of op.children) route.children = route.items.map((d) => node(`op ${d.index}`, [d]));
    }
  }
  return root;
}

let path = []; // from the root to what is zoomed into

function drawFlame() {
  const svg = $("flame"), wide = width(svg), high = 26, current = path[path.length - 1];
  clear(svg, wide, high * 5 + 2);
  const box = (node, x, room, depth, click) => {
    const fill = depth ? colour(node.items[0].family) : "#5f6770";
    const look = { x, y: depth * high, width: room, height: high - 1, fill, "fill-opacity": 1 - depth * 0.07 };
    const tip = `${duration(node.seconds)}, ${percent(node.seconds / level.gpu_seconds)}`;
    if (room < 3) look["stroke-opacity"] = 0.3; // or there would be nothing but borders
    mark(svg, "rect", { ...look, ...(room > 12 ? { tabindex: 0 } : {}) }, node.name, tip, () => {
      details(node.name, describe(node));
      click();
    });
    add(svg, "text", { x: x + 5, y: depth * high + 17, class: "label" }, fitting(node.name, room - 8));
  };
  const zoom = (line) => {
    path = line;
    drawFlame();
    svg.querySelectorAll(".mark")[line.length - 1].classList.add("chosen");
    svg.querySelectorAll(".mark")[line.length - 1].focus();
  };
  const draw = (node, x, room, line) => {
    if (room < 0.4) return;
    box(node, x, room, line.length - 1, () => {
      if (node === current) zoom(line.length > 1 ? line.slice(0, -1) : line);
      else if (node.children.length) zoom(line);
    });
    let at = x;
    for (const child of node.children) {
      const part = (child.seconds / node.seconds) * room;
      draw(child, at, part, [...line, child]);
      at += part;
    }
  };
  // What was zoomed into stays below what it is a part of.
  path.slice(0, -1).forEach((node, n) => box(node, 0, wide, n, () => zoom(path.slice(0, n + 1))));
  draw(current, 0, wide, path);
}

// ---- the timeline

const view = { from: 0, to: 1 };

function drawTimeline() {
  const svg = $("timeline"), wide = width(svg), run = level.run, left = 46;
  clear(svg, wide, 132);
  const scale = (ns) => left + ((ns / run.length - view.from) / (view.to - view.from)) * (wide - left - 4);
  for (let n = 0; n <= 4; n++) {
    const at = view.from + ((view.to - view.from) * n) / 4, x = left + ((wide - left - 4) * n) / 4;
    add(svg, "line", { x1: x, x2: x, y1: 14, y2: 110, class: "axis" });
    add(svg, "text", { x: n === 4 ? x - 2 : x + 2, y: 124, "text-anchor": n === 4 ? "end" : "start" },
      at ? duration((at * run.length) / 1e9) : "0");
  }
  const rows = [["host", 22, run.spans.map((s) => ({ ...s, fill: COLOURS[HOST[s.name] ?? 7] }))],
    ["GPU", 70, run.dispatches.map(([begin, end], n) => ({ begin, end, d: level.dispatches[n] }))]];
  for (const [title, y, bars] of rows) {
    add(svg, "text", { x: 0, y: y + 22 }, title);
    for (const bar of bars) {
      const x = scale(bar.begin), room = scale(bar.end) - x;
      if (x > wide || x + room < left || room < 0.05) continue;
      const from = Math.max(left, x), shown = Math.min(wide - 2, x + room) - from;
      const name = bar.d ? bar.d.route : bar.name, fill = bar.d ? colour(bar.d.family) : bar.fill;
      const tip = `${duration((bar.end - bar.begin) / 1e9)}, from ${duration(Math.max(0, bar.begin) / 1e9)}`;
      mark(svg, "rect", { x: from, y, width: Math.max(0.3, shown), height: 34, fill }, name, tip, () =>
        bar.d
          ? details(`${bar.d.route}, op ${bar.d.index}`, describe({ items: [bar.d], seconds: bar.d.seconds }))
          : details(bar.name, [["time", duration((bar.end - bar.begin) / 1e9)], ["what", HOST_MEANING[bar.name] || ""]]),
      );
      add(svg, "text", { x: from + 4, y: y + 21, class: "label" }, fitting(name, shown - 6));
    }
  }
}

const HOST_MEANING = {
  check: "inputs to arrays; dims, types, positions and indices checked",
  plan: "the level's plan found, or made",
  write: "inputs and changed SymInts handed to the GPU",
  encode: "dispatches recorded",
  submit: "commands given to the GPU",
  wait: "the GPU at work",
  read: "outputs brought back",
};

function zoomTimeline(factor, about) {
  const size = Math.min(1, (view.to - view.from) * factor), middle = view.from + (view.to - view.from) * about;
  view.from = Math.min(Math.max(0, middle - size * about), 1 - size);
  view.to = view.from + size;
  drawTimeline();
}

function moveTimeline(by) {
  const size = view.to - view.from;
  view.from = Math.min(Math.max(0, view.from + by * size), 1 - size);
  view.to = view.from + size;
  drawTimeline();
}

// ---- the roofline

function drawRoofline() {
  const svg = $("roofline"), wide = width(svg), high = 300, left = 58, bottom = 36;
  clear(svg, wide, high);
  const routes = level.routes.filter((r) => r.flops > 0 && r.bytes_read + r.bytes_written > 0 && r.seconds > 0);
  if (!routes.length) return void add(svg, "text", { x: 8, y: 24 }, "nothing here computes");
  const intensity = (r) => r.flops / (r.bytes_read + r.bytes_written);
  const { read_gb_s: bandwidth, fma_gflop_s: peak } = data.limits;
  const log = Math.log10, xs = routes.map(intensity), ys = routes.map((r) => r.gflop_s);
  const x0 = Math.floor(log(Math.min(...xs, 0.1))), x1 = Math.ceil(log(Math.max(...xs, (10 * peak) / bandwidth)));
  const y0 = Math.floor(log(Math.max(1e-4, Math.min(...ys)))), y1 = Math.ceil(log(peak * 1.2));
  const x = (v) => left + ((log(v) - x0) / (x1 - x0)) * (wide - left - 10);
  const y = (v) => 8 + ((y1 - log(Math.max(v, 1e-9))) / (y1 - y0)) * (high - bottom - 12);
  for (let n = x0; n <= x1; n++) {
    add(svg, "line", { x1: x(10 ** n), x2: x(10 ** n), y1: 8, y2: high - bottom, class: "axis" });
    add(svg, "text", { x: x(10 ** n), y: high - bottom + 15, "text-anchor": n === x0 ? "start" : "middle" }, Number(10 ** n));
  }
  for (let n = y0; n <= y1; n++) {
    add(svg, "line", { x1: left, x2: wide - 10, y1: y(10 ** n), y2: y(10 ** n), class: "axis" });
    add(svg, "text", { x: left - 6, y: y(10 ** n) + 4, "text-anchor": "end" }, Number((10 ** n).toPrecision(1)));
  }
  add(svg, "text", { x: wide - 10, y: high - 6, "text-anchor": "end" }, "FLOP per byte");
  add(svg, "text", { x: left + 6, y: 20 }, "GFLOP/s");
  const ridge = peak / bandwidth, start = 10 ** x0;
  const roof = [[start, start * bandwidth], [ridge, peak], [10 ** x1, peak]];
  add(svg, "polyline", { points: roof.map(([a, b]) => `${x(a)},${y(b)}`).join(" "), class: "roof", "stroke-width": 2 });
  for (const [rank, route] of [...routes].sort((a, b) => b.seconds - a.seconds).entries()) {
    const radius = 4 + 18 * Math.sqrt(route.seconds / level.gpu_seconds), name = `${short(route.op)} · ${route.route}`;
    const place = { cx: x(intensity(route)), cy: y(route.gflop_s), r: radius, fill: colour(route.family), "fill-opacity": 0.8 };
    mark(svg, "circle", { ...place, tabindex: 0 }, name, `${route.gflop_s.toFixed(2)} GFLOP/s, ${duration(route.seconds)}`, () =>
      showRoute(route));
    if (rank > 3) continue;
    const right = place.cx < wide - 150; // beside the circle, on the side where there is room
    const beside = { x: place.cx + (right ? radius + 4 : -radius - 4), y: place.cy + 4, "text-anchor": right ? "start" : "end" };
    add(svg, "text", beside, route.route);
  }
}

// ---- the table

const items = (route) => level.dispatches.filter((d) => d.op === route.op && d.route === route.route);
const showRoute = (route) =>
  details(`${short(route.op)} · ${route.route}`, describe({ items: items(route), seconds: route.seconds }));

const COLUMNS = [
  ["op", (r) => short(r.op)],
  ["route", (r) => r.route],
  ["time", (r) => r.seconds, duration],
  ["share", (r) => r.share, percent],
  ["calls", (r) => r.calls, String],
  ["GB/s", (r) => r.gb_s, (v) => v.toFixed(2)],
  ["GFLOP/s", (r) => r.gflop_s, (v) => v.toFixed(2)],
  ["of limit", (r) => r.of_limit, percent],
  ["limit", (r) => r.limit],
];
let order = { column: 2, down: true };

function drawTable() {
  const head = $("table").tHead, body = $("table").tBodies[0];
  head.innerHTML = body.innerHTML = "";
  const titles = head.insertRow();
  COLUMNS.forEach(([title], n) => {
    const cell = titles.appendChild(document.createElement("th"));
    if (n === order.column) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    const button = cell.appendChild(document.createElement("button"));
    button.textContent = title + (n === order.column ? (order.down ? " ↓" : " ↑") : "");
    button.addEventListener("click", () => {
      order = { column: n, down: order.column === n ? !order.down : n > 1 };
      drawTable();
    });
  });
  const value = COLUMNS[order.column][1], sign = order.down ? -1 : 1;
  const sorted = [...level.routes].sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  for (const route of sorted) {
    const row = body.insertRow();
    row.tabIndex = 0;
    for (const [, get, form] of COLUMNS) row.insertCell().textContent = form ? form(get(route)) : get(route);
    row.addEventListener("click", () => showRoute(route));
    row.addEventListener("keydown", (event) => event.key === "Enter" && showRoute(route));
  }
}

// ---- the page

function draw() {
  $("finding").textContent = level.finding;
  $("totals").textContent = [level.totals, level.host, data.busy].filter(Boolean).map((text) => text[0].toUpperCase() + text.slice(1)).join(". ");
  $("key").innerHTML = "";
  for (const family of new Set(level.routes.map((route) => route.family))) {
    const entry = $("key").appendChild(document.createElement("span"));
    entry.appendChild(document.createElement("i")).style.background = colour(family);
    entry.append(family);
  }
  const root = tree();
  path = [root];
  drawFlame();
  drawTimeline();
  drawRoofline();
  drawTable();
  details("all dispatches", describe(root));
}

function show(n) {
  level = data.levels[n];
  view.from = 0;
  view.to = 1;
  [...$("levels").children].forEach((tab, m) => tab.setAttribute("aria-selected", n === m));
  draw();
}

$("title").textContent = data.subject;
$("where").textContent = `${data.where}; timed by ${data.timing}`;
$("limits").textContent = `The adapter's limits: ${data.limits_text}`;
data.levels.forEach((one, n) => {
  const tab = $("levels").appendChild(document.createElement("button"));
  tab.setAttribute("role", "tab");
  tab.textContent = one.name;
  tab.addEventListener("click", () => show(n));
});
const dark = (on) => {
  document.documentElement.classList.toggle("dark", on);
  $("theme").setAttribute("aria-pressed", on);
};
$("theme").addEventListener("click", () => dark(!document.documentElement.classList.contains("dark")));
dark(matchMedia("(prefers-color-scheme: dark)").matches);
$("in").addEventListener("click", () => zoomTimeline(0.5, 0.5));
$("out").addEventListener("click", () => zoomTimeline(2, 0.5));
$("timeline").addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = $("timeline").getBoundingClientRect();
  zoomTimeline(event.deltaY < 0 ? 0.8 : 1.25, (event.clientX - box.left) / box.width);
}, { passive: false });
let dragged = null;
$("timeline").addEventListener("pointerdown", (event) => (dragged = event.clientX));
addEventListener("pointermove", (event) => {
  if (dragged === null || event.buttons === 0) return;
  if (Math.abs(event.clientX - dragged) < 3) return;
  moveTimeline((dragged - event.clientX) / width($("timeline")));
  dragged = event.clientX;
});
addEventListener("pointerup", () => (dragged = null));
$("timeline").addEventListener("keydown", (event) => {
  const move = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key], factor = { "+": 0.5, "-": 2 }[event.key];
  if (move) moveTimeline(move);
  else if (factor) zoomTimeline(factor, 0.5);
});
addEventListener("resize", draw);
show(0);
