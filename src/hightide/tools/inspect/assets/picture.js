"use strict";
// The page of `hightide inspect --html`: the picture, where things are and how they are drawn; panel.js has the rest.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const W = 176, H = 42, GAP_X = 26, GAP_Y = 34, HEAD = 24, PAD = 14;
const HUES = ["#3b82c4", "#c2573a", "#4c9a5b", "#8f63b8", "#b0892b", "#2f9c95", "#c0568c", "#7a8794", "#5b6bd6", "#8a9a3a", "#a0522d", "#d08770"];
const state = { part: 0, level: {}, open: new Set(), chosen: null, found: [], foundAt: -1, colour: "family",
  view: { x: 0, y: 0, k: 1 } };
let drawn = { nodes: new Map(), edges: [], box: { x: 0, y: 0, w: 1, h: 1 } };

const part = () => data.parts[state.part];
const families = [...new Set(data.parts.flatMap((p) => Object.values(p.nodes).map((n) => n.family)))].sort();
const hue = (family) => HUES[families.indexOf(family) % HUES.length];

// ---- formulas

function evaluate(formula, at) {
  let total = 0;
  for (const [coefficient, atoms] of formula) {
    let product = coefficient;
    for (const atom of atoms) {
      if (typeof atom === "string") product *= at[atom];
      else {
        const [kind, left, right] = atom, a = evaluate(left, at), b = evaluate(right, at);
        product *= kind === "floor" ? Math.floor(a / b) : kind === "max" ? Math.max(a, b) : Math.min(a, b);
      }
    }
    total += product;
  }
  return total;
}
const dimsText = (value) => "[" + value.dims.map((d) => d.text).join(", ") + "]";
const dimsAt = (value) => "[" + value.dims.map((d) => (d.formula ? evaluate(d.formula, state.level) : "?")).join(", ") + "]";

function planIndex() {
  return part().levels.findIndex((level) => Object.keys(level).every((name) => level[name] === state.level[name]));
}

function amount(n, unit) {
  for (const [step, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (n >= step) return (n / step).toPrecision(3) + " " + prefix + unit;
  return n + (unit ? " " + unit : "");
}

// ---- where things are

function place(placed, sizes) {
  // Rows as tall as their tallest node; columns as wide as a node, pushed apart where a group is open.
  const rows = [];
  for (const [name, [x, row]] of Object.entries(placed.at)) (rows[row] ||= []).push({ name, x, ...sizes(name) });
  placed.edges.forEach(([, , , via], n) => via.forEach(([x, row], m) => (rows[row] ||= []).push({ name: `v${n}.${m}`, x, w: 10, h: 0 })));
  const at = new Map();
  let y = 0, left = Infinity, right = -Infinity;
  for (const row of rows) {
    if (!row) continue;
    row.sort((a, b) => a.x - b.x);
    row.forEach((cell) => { cell.cx = cell.x * (W + GAP_X); });
    let anchor = 0;
    row.forEach((cell, n) => { if (cell.w > row[anchor].w) anchor = n; });
    for (let n = anchor + 1; n < row.length; n++)
      row[n].cx = Math.max(row[n].cx, row[n - 1].cx + row[n - 1].w / 2 + GAP_X + row[n].w / 2);
    for (let n = anchor - 1; n >= 0; n--)
      row[n].cx = Math.min(row[n].cx, row[n + 1].cx - row[n + 1].w / 2 - GAP_X - row[n].w / 2);
    const height = Math.max(...row.map((cell) => cell.h));
    for (const cell of row) {
      at.set(cell.name, { x: cell.cx, y: y, w: cell.w, h: cell.h, row: height });
      left = Math.min(left, cell.cx - cell.w / 2); right = Math.max(right, cell.cx + cell.w / 2);
    }
    y += height + GAP_Y;
  }
  return { at, left: Math.min(left, 0), width: right - Math.min(left, 0), height: Math.max(0, y - GAP_Y) };
}

function layout() {
  const p = part();
  const inside = {};
  for (const name of Object.keys(p.groups))
    if (state.open.has(name)) inside[name] = place(p.groups[name], (node) => (node.includes(":") ? { w: 10, h: 0 } : { w: W, h: H }));
  const outer = place(p.top, (name) => (inside[name]
    ? { w: inside[name].width + 2 * PAD, h: inside[name].height + HEAD + 2 * PAD } : { w: W, h: H }));
  const nodes = new Map(), groups = [], edges = [];
  const ports = {};
  for (const name of Object.keys(p.top.at)) {
    const box = outer.at.get(name);
    if (!inside[name]) { nodes.set(name, box); continue; }
    groups.push({ name, box });
    const dx = box.x - box.w / 2 + PAD - inside[name].left, dy = box.y + HEAD + PAD;
    const moved = new Map();
    for (const [node, b] of inside[name].at) moved.set(node, { ...b, x: b.x + dx, y: b.y + dy });
    for (const node of Object.keys(p.groups[name].at)) if (!node.includes(":")) nodes.set(node, moved.get(node));
    ports[name] = moved;
    route(p.groups[name].edges, moved, edges, (end) => moved.get(end));
  }
  route(p.top.edges, outer.at, edges, (end, value, side) => ports[end]?.get(`${side}:${value}`) || outer.at.get(end));
  return { nodes, groups, edges, box: { x: outer.left, y: 0, w: outer.width, h: outer.height } };
}

function route(list, at, edges, find) {
  list.forEach(([source, target, value, via], n) => {
    const from = find(source, value, "out"), to = find(target, value, "in");
    const points = [[from.x, from.y + from.h]];
    via.forEach((_, m) => { const b = at.get(`v${n}.${m}`); points.push([b.x, b.y], [b.x, b.y + b.row]); });
    points.push([to.x, to.y]);
    let path = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
    for (let i = 1; i < points.length; i++) {
      const [x0, y0] = points[i - 1], [x1, y1] = points[i], middle = (y0 + y1) / 2;
      path += x0 === x1 ? `L${x1.toFixed(1)} ${y1.toFixed(1)}`
        : `C${x0.toFixed(1)} ${middle.toFixed(1)} ${x1.toFixed(1)} ${middle.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
    }
    edges.push({ source, target, value, path });
  });
}

// ---- drawing

function svg(tag, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent?.append(made);
  return made;
}

function short(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }

function describe(name) {
  const p = part();
  if (p.groups[name]) return { title: p.groups[name].label, sub: `${Object.keys(p.groups[name].at).filter((n) => !n.includes(":")).length} ops, click to open` };
  const io = p.inputs[name] || p.outputs[name];
  if (io) return { title: io.name, sub: p.values[io.value] ? dimsText(p.values[io.value]) : "", io: true };
  const node = p.nodes[name], value = p.values[node.gives[0]];
  return { title: node.short, sub: value ? dimsText(value) : "", node };
}

function shares() {
  // What part of the most costly op each one is, for colours; bars are as long as the square root, to show small ones.
  const plan = part().plans[Math.max(0, planIndex())] || {};
  const cost = {};
  for (const [name, rows] of Object.entries(plan))
    cost[name] = rows.reduce((sum, row) => sum + (state.colour === "flops" ? row[6] : row[4] + row[5]), 0);
  const most = Math.max(1, ...Object.values(cost));
  return (name) => (cost[name] || 0) / most;
}

function render() {
  drawn = layout();
  const view = $("view");
  view.replaceChildren();
  for (const group of drawn.groups) {
    const g = svg("g", { class: "group", "data-group": group.name }, view), b = group.box;
    svg("rect", { x: b.x - b.w / 2, y: b.y, width: b.w, height: b.h, rx: 8 }, g);
    const title = svg("text", { class: "title", x: b.x - b.w / 2 + 10, y: b.y + 17, tabindex: 0, role: "button" }, g);
    title.textContent = `▾ ${part().groups[group.name].label}`;
    title.addEventListener("click", () => toggle(group.name));
    title.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(group.name); });
  }
  for (const edge of drawn.edges) edge.element = svg("path", { class: "edge", d: edge.path }, view);
  const share = shares();
  for (const [name, box] of drawn.nodes) {
    const about = describe(name), kind = about.node ? (about.node.view ? " view" : "") : about.io ? " io" : " folded";
    const g = svg("g", { class: `node${kind}`, "data-node": name, tabindex: 0, role: "button",
      "aria-label": `${about.title} ${about.sub}`, transform: `translate(${box.x - W / 2},${box.y})` }, view);
    if (kind === " folded") { svg("rect", { x: 6, y: -5, width: W, height: H, rx: 6 }, g); svg("rect", { x: 3, y: -2.5, width: W, height: H, rx: 6 }, g); }
    svg("rect", { width: W, height: H, rx: 6 }, g);
    if (about.node) {
      const bar = svg("rect", { class: "bar", x: 0, y: 0, width: 5, height: H, rx: 2 }, g);
      bar.style.fill = hue(about.node.family);
      if (state.colour !== "family") { bar.setAttribute("width", Math.max(2, Math.sqrt(share(name)) * W)); bar.style.opacity = .5; }
    }
    svg("text", { x: 13, y: 17 }, g).textContent = short(about.title, 24);
    svg("text", { class: "sub", x: 13, y: 33 }, g).textContent = short(about.sub, 24);
    g.addEventListener("click", () => choose(name));
  }
  mark();
}

function mark() {
  for (const g of document.querySelectorAll(".node")) {
    g.classList.toggle("chosen", g.dataset.node === state.chosen);
    g.classList.toggle("found", state.found.some((name) => shownAs(name) === g.dataset.node));
  }
  for (const edge of drawn.edges) edge.element.classList.toggle("near", state.chosen !== null && (edge.source === state.chosen || edge.target === state.chosen));
}

function groupOf(name) {
  return Object.keys(part().groups).find((group) => name in part().groups[group].at) || null;
}
function shownAs(name) { const group = groupOf(name); return group && !state.open.has(group) ? group : name; }

function toggle(group) {
  const before = drawn.nodes.get(group) || drawn.groups.find((g) => g.name === group)?.box;
  if (!state.open.delete(group)) state.open.add(group);
  render();
  const after = drawn.nodes.get(group) || drawn.groups.find((g) => g.name === group)?.box;
  if (before && after) move(state.view.x + (before.x - after.x) * state.view.k, state.view.y + (before.y - after.y) * state.view.k, state.view.k);
}

// ---- moving about

function move(x, y, k) {
  state.view = { x, y, k };
  $("view").setAttribute("transform", `translate(${x},${y}) scale(${k})`);
}
function zoom(factor, at) {
  const { x, y, k } = state.view, box = $("picture").getBoundingClientRect();
  const px = at ? at.clientX - box.left : box.width / 2, py = at ? at.clientY - box.top : box.height / 2;
  const next = Math.min(4, Math.max(0.02, k * factor));
  move(px - (px - x) * next / k, py - (py - y) * next / k, next);
}
function fit() {
  const box = $("picture").getBoundingClientRect(), b = drawn.box;
  const k = Math.min(1.2, (box.width - 40) / Math.max(b.w, 1), (box.height - 40) / Math.max(b.h, 1));
  move(box.width / 2 - (b.x + b.w / 2) * k, 20, k);
}
function start() {
  // The whole if it can be read, else the top.
  fit();
  if (state.view.k < 0.5) {
    const box = $("picture").getBoundingClientRect(), k = Math.min(1, Math.max(0.5, (box.width - 40) / Math.max(drawn.box.w, 1)));
    move(box.width / 2 - (drawn.box.x + drawn.box.w / 2) * k, 20, k);
  }
}
function show(name) {
  const group = groupOf(name);
  if (group && !state.open.has(group)) { state.open.add(group); render(); }
  const b = drawn.nodes.get(name), box = $("picture").getBoundingClientRect();
  if (!b) return;
  const k = Math.max(state.view.k, 0.6);
  move(box.width / 2 - b.x * k, box.height / 2 - (b.y + H / 2) * k, k);
}
