// The second half of the page's script: what was clicked, searching, keys and pointers.

// ---- the panel

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function table(heads, rows, numbers = []) {
  const made = element("table"), body = element("tbody");
  if (heads.length) {
    const head = element("thead"), line = element("tr");
    heads.forEach((h, n) => line.append(element("th", h, numbers.includes(n) ? "n" : "")));
    head.append(line); made.append(head);
  }
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, n) => { const td = element("td", undefined, numbers.includes(n) ? "n" : ""); td.append(cell); line.append(td); });
    body.append(line);
  }
  made.append(body);
  return made;
}
function link(name, text) {
  const made = element("button", text, "link");
  made.type = "button";
  made.addEventListener("click", () => { choose(name); show(name); });
  return made;
}

function levelPicker(panel) {
  const p = part(), form = element("p");
  form.className = "level";
  if (p.levels.length > 1) {
    const select = element("select");
    select.id = "level";
    select.setAttribute("aria-label", "level");
    p.levels.forEach((level, n) => select.append(new Option(levelText(level), n)));
    select.append(new Option("another", -1));
    select.value = planIndex();
    select.addEventListener("change", () => { if (select.value >= 0) { state.level = { ...p.levels[select.value] }; refresh(); } });
    form.append(select, " ");
  }
  for (const symbol of p.symbols) {
    const label = element("label", symbol.name + " "), input = element("input");
    input.type = "number"; input.min = 0; input.max = symbol.most; input.value = state.level[symbol.name]; input.dataset.symbol = symbol.name;
    input.addEventListener("change", () => { state.level[symbol.name] = Math.min(symbol.most, Math.max(0, Math.round(+input.value || 0))); refresh(); });
    label.append(input); form.append(label, " ");
  }
  if (p.symbols.length) { panel.append(element("h3", "level"), form); }
}
const levelText = (level) => Object.entries(level).map(([name, value]) => `${name}=${value}`).join(", ") || "the only one";

function refresh() {
  if (state.chosen) fill(state.chosen); else overview();
  if (state.colour !== "family") render();
}

function source(kernel) {
  const details = element("details"), pre = element("pre");
  details.append(element("summary", `${kernel.name} (${kernel.file})`), pre);
  details.addEventListener("toggle", () => { if (details.open && !pre.childNodes.length) code(pre, kernel.source); });
  return details;
}
function code(pre, text) {
  const token = /(\/\/.*)|(@\w+(?:\([^)]*\))?)|\b(fn|let|var|const|struct|if|else|for|loop|while|return|break|continue|enable|override|switch|case|default)\b|\b(f32|f16|i32|u32|bool|vec[234](?:<\w+>)?|array|mat\w+|ptr|atomic)\b/g;
  text.split("\n").forEach((line, n) => {
    pre.append(element("span", String(n + 1), "no"));
    let last = 0;
    for (const match of line.matchAll(token)) {
      pre.append(line.slice(last, match.index), element("span", match[0], match[1] ? "c" : match[2] ? "a" : match[3] ? "k" : "t"));
      last = match.index + match[0].length;
    }
    pre.append(line.slice(last) + "\n");
  });
}

function choose(name) {
  if (part().groups[name]) { toggle(name); return; }
  state.chosen = name;
  mark();
  fill(name);
}

function producer(id) {
  const p = part();
  return Object.keys(p.nodes).find((name) => p.nodes[name].gives.includes(id)) || Object.keys(p.inputs).find((name) => p.inputs[name].value === id);
}
const drawable = (name) => name && (name in part().top.at || groupOf(name));

const WHERE = { NumPy: "runs on NumPy", host: "of the host", part: "runs on the adapter" };

function valueLine(id) {
  const p = part(), value = p.values[id], name = `${p.mark ?? "%"}${id}`;
  if (value) return [name, value.dtype, element("code", dimsText(value)), element("code", dimsAt(value)), element("code", "[" + value.max.join(", ") + "]")];
  const symint = p.symints[id];
  return [name, "SymInt", element("code", symint?.text ?? ""), element("code", symint?.formula ? String(evaluate(symint.formula, state.level)) : "?"), ""];
}

function fill(name) {
  const panel = $("panel"), p = part();
  panel.replaceChildren();
  const io = p.inputs[name] || p.outputs[name];
  if (io) {
    panel.append(element("h2", io.name));
    levelPicker(panel);
    panel.append(element("h3", "dims"), table(["value", "type", "live", "here", "max"], [valueLine(io.value)]));
    return;
  }
  const node = p.nodes[name], mine = node.part === undefined;
  panel.append(element("h2", node.name), element("p", `${mine ? "op" : "instruction"} ${node.op}, ${WHERE[node.family] || node.family}`, "dim"));
  if (typeof node.part === "number") {
    const into = element("button", "open this part", "link");
    into.type = "button"; into.id = "open-part";
    into.addEventListener("click", () => { open(node.part); $("part").value = node.part; });
    panel.append(into);
  }
  if (node.about) panel.append(element("p", node.about));
  levelPicker(panel);
  panel.append(element("h3", "gives"), table(["value", "type", "live", "here", "max"], node.gives.map(valueLine)));
  const unknown = node.gives.flatMap((id) => (p.values[id]?.dims || []).filter((d) => d.samples));
  for (const dim of unknown) panel.append(element("p", "? is " + dim.samples.map(([at, v]) => `${v} at ${levelText(at)}`).join("; "), "dim"));
  panel.append(element("h3", "arguments"), table([], node.arguments.map(([argument, text, ids]) => {
    const from = ids.length === 1 ? producer(ids[0]) : undefined, value = p.values[ids[0]], symint = p.symints[ids[0]];
    const dims = ids.length !== 1 ? "" : value ? `${value.dtype}${dimsText(value)}` : symint ? `= ${symint.text}` : "";
    return [argument, drawable(from) ? link(from, text) : element("code", text), element("code", dims)];
  })));
  const users = Object.keys(p.nodes).filter((other) => p.nodes[other].arguments.some(([, , ids]) => ids.some((id) => node.gives.includes(id))) && drawable(other));
  if (users.length) {
    const line = element("p", "read by ");
    users.slice(0, 12).forEach((user, n) => line.append(n ? ", " : "", link(user, `${p.nodes[user].short} (${mine ? "op" : "instruction"} ${p.nodes[user].op})`)));
    if (users.length > 12) line.append(` and ${users.length - 12} more`);
    panel.append(line);
  }
  if (!mine) return;
  const at = planIndex();
  panel.append(element("h3", "dispatches"));
  if (at < 0) panel.append(element("p", `Plans are in this page for ${p.levels.map(levelText).join("; ")}. For others: hightide inspect --at.`, "dim"));
  else {
    const rows = p.plans[at][name] || [];
    if (!rows.length) panel.append(element("p", node.view ? "None: it is a view, the same memory as its source." : "None at this level.", "dim"));
    else panel.append(table(["route", "grid", "read", "written", "FLOPs"], rows.map(([routeName, , , grid, read, written, flops]) =>
      [routeName, grid.filter((g) => g !== 1).join("x") || "1", amount(read, "B"), amount(written, "B"), amount(flops, "")]), [1, 2, 3, 4]));
  }
  const kernels = [...new Set(p.plans.flatMap((plan) => (plan[name] || []).map((row) => row[1])))];
  if (kernels.length) {
    panel.append(element("h3", "kernels, at the levels of this page"));
    kernels.forEach((number) => panel.append(source(data.kernels[number])));
  }
}

function overview() {
  const panel = $("panel"), report = data.report, p = part();
  panel.replaceChildren();
  panel.append(element("h2", report.path.split(/[\\/]/).pop()), element("p", `${report.kind}, ${amount(report.bytes, "B")}; planned for ${report.target}`, "dim"));
  levelPicker(panel);
  for (const method of report.methods) {
    const type = (t) => `${t.dtype}[${t.live.join(", ")}]`;
    panel.append(element("h3", method.name), element("p", `(${method.inputs.map((t) => `${t.name} ${type(t)}`).join(", ")}) → ${method.outputs.map(type).join(", ")}`, "dims"));
    const outside = Object.entries(method.outside), kept = method.constants.reduce((total, c) => total + c.bytes, 0);
    if (outside.length) panel.append(element("p", "on NumPy: " + outside.map(([op, n]) => `${op} ×${n}`).join(", ")));
    const sum = (name) => method.parts.reduce((total, q) => total + q.memory[name], 0);
    const kinds = [["weights", "weights"], ["KV and other state", "state"], ["inputs", "inputs"], ["activations", "activations"], ["scratch", "scratch"], ["saved by views", "views"], ["saved by reuse", "reuse"]];
    const rows = kinds.map(([text, name]) => [text, amount(sum(name), "B")]);
    if (kept) rows.push(["weights and state on NumPy", amount(kept, "B")]);
    panel.append(table(["memory at the max", ""], rows, [1]));
  }
  const integers = Object.entries(p.symints);
  if (integers.length) panel.append(element("h3", "live integers"), table([], integers.map(([id, f]) => [`${p.mark ?? "%"}${id}`, element("code", f.text), element("code", f.formula ? String(evaluate(f.formula, state.level)) : "?")])));
  const shownFamilies = [...new Set(Object.values(p.nodes).filter((n) => n.gives.some((id) => p.values[id])).map((n) => n.family))].sort();
  const legend = element("p");
  shownFamilies.forEach((family) => { const dot = element("span", "■ "); dot.style.color = hue(family); legend.append(dot, family + "  "); });
  panel.append(element("h3", "colours"), legend);
  panel.append(element("h3", "keys"), element("p", "/ search, Enter the next; + − 0 zoom; e opens or closes layers; ↑ ↓ follow the tensors, ← → go along a row; Esc back here", "dim"));
  panel.append(element("p", `Formulas were checked at ${p.checked} level${p.checked === 1 ? "" : "s"}.`, "dim"));
}

// ---- searching, keys, pointers

function search(text) {
  const p = part(), wanted = text.trim().toLowerCase();
  state.found = !wanted ? [] : Object.keys(p.nodes).filter((name) => {
    const node = p.nodes[name], routes = p.plans.flatMap((plan) => (plan[name] || []).map((row) => row[0]));
    const dims = node.gives.map((id) => (p.values[id] ? dimsText(p.values[id]) : ""));
    return drawable(name) && [node.name, `op ${node.op}`, ...routes, ...dims].some((t) => t.toLowerCase().includes(wanted));
  });
  state.foundAt = -1;
  $("found").textContent = wanted ? `${state.found.length} found` : "";
  mark();
}
function nextFound(step) {
  if (!state.found.length) return;
  state.foundAt = (state.foundAt + step + state.found.length) % state.found.length;
  const name = state.found[state.foundAt];
  show(name); choose(name);
  $("found").textContent = `${state.foundAt + 1} of ${state.found.length}`;
}
function follow(key) {
  const here = document.activeElement?.dataset?.node || state.chosen;
  if (!here || !drawn.nodes.has(here)) { const first = drawn.nodes.keys().next().value; if (first) focus(first); return; }
  const from = drawn.nodes.get(here);
  let names;
  if (key === "ArrowDown" || key === "ArrowUp") {
    const down = key === "ArrowDown";
    names = [...drawn.nodes.keys()].filter((name) => (down ? drawn.nodes.get(name).y > from.y + 1 : drawn.nodes.get(name).y < from.y - 1));
    const joined = drawn.edges.map((e) => (down ? (e.source === here ? e.target : null) : (e.target === here ? e.source : null))).filter((n) => names.includes(n));
    if (joined.length) names = joined;
  } else names = [...drawn.nodes.keys()].filter((name) => { const b = drawn.nodes.get(name); return Math.abs(b.y - from.y) < H && (key === "ArrowRight" ? b.x > from.x : b.x < from.x); });
  const far = (name) => Math.hypot(drawn.nodes.get(name).x - from.x, drawn.nodes.get(name).y - from.y);
  names.sort((a, b) => far(a) - far(b));
  if (names.length) focus(names[0]);
}
function focus(name) {
  document.querySelector(`.node[data-node="${CSS.escape(name)}"]`)?.focus();
  const b = drawn.nodes.get(name), box = $("picture").getBoundingClientRect(), { x, y, k } = state.view;
  const px = b.x * k + x, py = b.y * k + y;
  if (px < 60 || px > box.width - 60 || py < 30 || py > box.height - 60) move(box.width / 2 - b.x * k, box.height / 2 - b.y * k, k);
}
function toggleAll() {
  const all = Object.keys(part().groups);
  state.open = state.open.size === all.length ? new Set() : new Set(all);
  $("layers").textContent = state.open.size ? "close layers" : "open layers";
  render(); start();
}

document.addEventListener("keydown", (event) => {
  const typing = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
  if (event.key === "Escape") { state.chosen = null; mark(); overview(); $("picture").focus(); return; }
  if (typing) { if (event.key === "Enter" && event.target.id === "search") nextFound(event.shiftKey ? -1 : 1); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = { "/": () => $("search").focus(), "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit, e: toggleAll };
  if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  else if (event.key.startsWith("Arrow") && (event.target === $("picture") || event.target.classList?.contains("node"))) { event.preventDefault(); follow(event.key); }
  else if ((event.key === "Enter" || event.key === " ") && event.target.dataset?.node) {
    event.preventDefault();
    const name = event.target.dataset.node;
    choose(name);
    if (part().groups[name]) { const first = [...drawn.nodes.keys()].find((n) => groupOf(n) === name); if (first) focus(first); }
  }
});
$("picture").addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.ctrlKey || !event.shiftKey) zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), event);
  else move(state.view.x - event.deltaX, state.view.y - event.deltaY, state.view.k);
}, { passive: false });
const pointers = new Map();
$("picture").addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); });
window.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  const { x, y, k } = state.view;
  if (pointers.size === 2) {
    const other = [...pointers.values()].find((p) => p.pointerId !== event.pointerId);
    const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
    if (apart(before) > 0) zoom(apart(event) / apart(before), other);
  } else move(x + event.clientX - before.clientX, y + event.clientY - before.clientY, k);
  pointers.set(event.pointerId, event);
});
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, (event) => pointers.delete(event.pointerId));
$("search").addEventListener("input", (event) => search(event.target.value));
$("colour").addEventListener("change", (event) => { state.colour = event.target.value; render(); });
$("layers").addEventListener("click", toggleAll);
$("in").addEventListener("click", () => zoom(1.25));
$("out").addEventListener("click", () => zoom(0.8));
$("fit").addEventListener("click", fit);
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark") && (document.documentElement.dataset.theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark && document.documentElement.dataset.theme !== "light" ? "light" : "dark";
});

function open(number) {
  state.part = number; state.chosen = null; $("search").value = ""; $("found").textContent = ""; state.open = new Set(); state.found = [];
  const p = part();
  state.level = { ...(p.levels[0] || Object.fromEntries(p.symbols.map((s) => [s.name, s.most]))) };
  $("layers").hidden = !Object.keys(p.groups).length;
  const groups = Object.keys(p.groups).length;
  $("picture").setAttribute("aria-label", `the graph of ${p.name}: ${Object.keys(p.nodes).length} op${Object.keys(p.nodes).length === 1 ? "" : "s"}${groups ? ` in ${groups} layers` : ""}; arrow keys follow the tensors, Enter opens`);
  render(); start(); overview();
}
$("title").textContent = data.report.path.split(/[\\/]/).pop();
if (data.parts.length > 1) {
  $("part-label").hidden = false;
  data.parts.forEach((p, n) => $("part").append(new Option(p.name, n)));
  $("part").addEventListener("change", (event) => open(+event.target.value));
}
// A method of several parts is shown as such, one of a single part as that part.
const parts = data.parts.flatMap((p, n) => (p.mark ? [] : [n]));
const first = parts.length === 1 ? parts[0] : 0;
$("part").value = first;
if (data.parts.length) open(first);
else $("panel").append(element("h2", "nothing to draw"), element("p", data.report.missing.join("; ") || "This program has no delegated part.", "dim"));
