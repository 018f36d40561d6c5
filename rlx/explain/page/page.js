"use strict";
// One program, shown three times: the user's lines, the graph of equations, and what the compiler made of them.
// Whatever is pointed at lights what belongs to it in the other two.
const all = JSON.parse(document.getElementById("contents").textContent);
const WIDTH = 148, HEIGHT = 62, BOX = 132, TALL = 24, NAME = 12;
const SVG = "http://www.w3.org/2000/svg";
// hues a golden angle apart: neighbours in number are never alike; the number is printed beside each
const order = new Map(all.kernels.map((kernel, number) => [kernel.path, number]));
const colour = number => `hsl(${(number * 137.508) % 360} 60% ${[46, 58, 38][number % 3]}%)`;
const colourOf = path => colour(order.get(path) || 0);
const bytes = count => { let unit = 0; while (count >= 1024 && unit < 4) { count /= 1024; unit++; }
  return `${unit ? count.toPrecision(3) : count} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`; };
const many = count => count < 1000 ? `${count}` : Number(count.toPrecision(3)).toExponential().replace("e+", "e");
const time = seconds => { for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) if (seconds >= size) return `${(seconds / size).toPrecision(3)} ${unit}`;
  return `${Math.round(seconds * 1e9)} ns`; };
const key = line => line[0] + ":" + line[1];

function make(parent, name, attributes = {}, text = null) {
  const element = name.includes("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  if (text !== null) element.textContent = text;
  parent.append(element);
  return element;
}

// ------------------------------------------------------------ what belongs together
const shown = {line: new Map(), kernel: new Map(), node: new Map()};
const belongs = {line: new Map(), kernel: new Map()};   // the numbers of nodes of a line, of a kernel
function register(kind, which, element) {
  if (!shown[kind].has(which)) shown[kind].set(which, []);
  shown[kind].get(which).push(element);
}
let lit = [];
function light(lines, kernels, nodes, scroll) {
  for (const element of lit) element.classList.remove("lit");
  lit = [];
  for (const [kind, wanted] of [["line", lines], ["kernel", kernels], ["node", nodes]])
    for (const which of wanted)
      for (const element of shown[kind].get(which) || []) { element.classList.add("lit"); lit.push(element); }
  if (scroll) for (const element of lit) {
    const panel = element.closest("section");
    if (panel && panel !== scroll && panel.id !== "graph") { element.scrollIntoView({block: "nearest"}); }
  }
}
function pointed(element, find) {
  element.addEventListener("mouseenter", () => { const [l, k, n] = find(); light(l, k, n, element.closest("section")); });
  element.addEventListener("mouseleave", () => light([], [], [], null));
}
const nodes = all.graph.nodes;
nodes.forEach((node, number) => {
  if (node.line) { const k = key(node.line); if (!belongs.line.has(k)) belongs.line.set(k, []); belongs.line.get(k).push(number); }
  for (const path of node.kernels || []) { if (!belongs.kernel.has(path)) belongs.kernel.set(path, []); belongs.kernel.get(path).push(number); }
});
const inside = path => all.kernels.map(kernel => kernel.path).filter(other => other === path || other.startsWith(path + "."));
const ofNode = number => { const n = nodes[number]; return [n.line ? [key(n.line)] : [], n.kernels || [], [number]]; };
const ofLine = k => { const found = belongs.line.get(k) || []; return [[k], [...new Set(found.flatMap(n => nodes[n].kernels || []))], found]; };
const ofKernel = path => { const paths = inside(path), found = [...new Set(paths.flatMap(p => belongs.kernel.get(p) || []))];
  return [[...new Set([...paths.flatMap(p => all.kernels[order.get(p)].lines.map(key)), ...found.filter(n => nodes[n].line).map(n => key(nodes[n].line))])], paths, found]; };

// ------------------------------------------------------------ head and the user's lines
const head = make(document.body, "header");
make(head, "b", {}, all.title);
make(head, "span", {}, `${nodes.length - all.inputs} equations, ${all.kernels.filter(k => !k.path.includes(".")).length} kernels`);
const theme = make(head, "button", {id: "theme"}, "light / dark");
theme.onclick = () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
};
const lines = make(document.body, "section", {id: "lines"});
for (const source of all.sources) {
  make(lines, "h2", {}, source.name);
  let last = null;
  for (const [number, text] of source.lines) {
    if (last !== null && number !== last + 1) make(lines, "span", {class: "row"}, "  ⋮");
    last = number;
    const k = source.file + ":" + number, row = make(lines, "span", {class: "row" + (belongs.line.has(k) ? " made" : "")});
    make(row, "i", {}, number);
    row.append(text);
    register("line", k, row);
    if (belongs.line.has(k)) pointed(row, () => ofLine(k));
  }
}

// ------------------------------------------------------------ the graph
const panel = make(document.body, "section", {id: "graph"});
const svg = make(panel, "svg:svg", {class: "graph"});
const xs = nodes.map(n => n.x * WIDTH), ys = nodes.map(n => n.y * HEIGHT);
let left = Infinity, right = -Infinity, low = 0;
for (let n = 0; n < nodes.length; n++) { left = Math.min(left, xs[n]); right = Math.max(right, xs[n]); low = Math.max(low, ys[n]); }
make(svg, "svg:path", {class: "edges", d: all.graph.edges.map(([from, to]) => {
  const y = ys[from] + TALL, z = ys[to], m = (y + z) / 2;
  return `M${xs[from]} ${y}C${xs[from]} ${m} ${xs[to]} ${m} ${xs[to]} ${z}`;
}).join("")});
const carried = new Map(); // the types on the edges that leave a node
for (const [from, , type] of all.graph.edges) { if (!carried.has(from)) carried.set(from, new Set()); carried.get(from).add(type); }
for (const number of all.graph.results) if (!carried.has(number)) carried.set(number, new Set([nodes[number].type]));
for (const [from, types] of carried) { // float32 is f32, as in the listing of LLVM: the whole name is in the line below
  const text = [...types].join(" ").replace(/\b(b?float|u?int|complex|bool)(\d*)/g, (_, kind, bits) => ({float: "f", bfloat: "bf", int: "i", uint: "u", complex: "c", bool: "bool"})[kind] + bits);
  make(svg, "svg:text", {class: "shape", x: xs[from] + 4, y: ys[from] + TALL + 11}, text.length > 22 ? text.slice(0, 21) + "…" : text);
}
const results = new Set(all.graph.results);
nodes.forEach((node, number) => {
  const kind = (node.how === "input" ? " input" : "") + (results.has(number) ? " result" : "");
  const group = make(svg, "svg:g", {class: "node" + kind, transform: `translate(${xs[number] - BOX / 2} ${ys[number]})`});
  make(group, "svg:rect", {width: BOX, height: TALL, rx: 4});
  const paths = node.kernels || [], badge = paths.length > 2 ? paths.slice(0, 2).join(" ") + "…" : paths.join(" ");
  paths.forEach((path, n) => make(group, "svg:rect", {y: n * TALL / paths.length, width: 6, height: TALL / paths.length, style: `fill:${colourOf(path)};stroke:none`}));
  const room = badge ? Math.max(NAME - Math.max(badge.length - 3, 0), 6) : NAME + 4;
  make(group, "svg:text", {x: 11, y: 16}, node.name.length > room ? node.name.slice(0, room - 1) + "…" : node.name);
  make(group, "svg:text", {class: "badge", x: BOX - 6, y: 16, "text-anchor": "end"}, badge);
  register("node", number, group);
  pointed(group, () => { told.textContent = node.text + (node.type ? "  # " + node.type : "") + "  " + node.how + (node.kernels ? ": kernel " + node.kernels.join(", ") : ""); return ofNode(number); });
});
const told = make(panel, "p");
const buttons = make(panel, "div");
const whole = () => [left - BOX, -44, Math.max(right - left + 2 * BOX, 1), low + TALL + 84]; // the buttons are above
let view = whole();
const look = () => svg.setAttribute("viewBox", view.join(" "));
function zoom(factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) {
  view = [x - (x - view[0]) * factor, y - (y - view[1]) * factor, view[2] * factor, view[3] * factor]; look();
}
function begin() { // as large as can be read: the top of the program
  const box = svg.getBoundingClientRect(), w = Math.max(box.width, 300), h = Math.max(box.height, 300);
  const scale = Math.max(1, Math.min(1.6, Math.max((right - left + 2 * BOX) / w, 1)));
  view = [(left + right) / 2 - w * scale / 2, -44 * scale, w * scale, h * scale]; look();
}
for (const [name, action] of [["+", () => zoom(0.7)], ["−", () => zoom(1 / 0.7)], ["all", () => { view = whole(); look(); }], ["top", begin]])
  make(buttons, "button", {id: "zoom-" + name}, name).onclick = action;
svg.addEventListener("wheel", event => {
  event.preventDefault();
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, point.x, point.y);
}, {passive: false});
let held = null;
svg.addEventListener("pointerdown", event => { held = [event.clientX, event.clientY]; svg.setPointerCapture(event.pointerId); });
svg.addEventListener("pointerup", () => { held = null; });
svg.addEventListener("pointermove", event => {
  if (!held) return;
  const scale = 1 / svg.getScreenCTM().a;
  view[0] -= (event.clientX - held[0]) * scale; view[1] -= (event.clientY - held[1]) * scale;
  held = [event.clientX, event.clientY]; look();
});

// ------------------------------------------------------------ what the compiler made
const made = make(document.body, "section", {id: "made"});
const tabs = make(made, "nav"), body = make(made, "div");
function code(parent, text, owners) { // the blocks of a text, each lit with the kernel that it computes
  for (const block of text.split(/\n\n\n|\n(?=define )/)) {
    const pre = make(parent, "pre", {}, block + "\n");
    const name = (block.match(/^(?:def|define)[^(\n]*?@?(\w+)\(/m) || [])[1];
    for (const path of owners.get(name) || []) register("kernel", path, pre);
    if (owners.has(name)) pointed(pre, () => ofKernel(owners.get(name)[0]));
  }
}
const functions = new Map();
for (const kernel of all.kernels) for (const name of kernel.functions) { if (!functions.has(name)) functions.set(name, []); functions.get(name).push(kernel.path); }
const texts = new Map(all.sources.flatMap(source => source.lines.map(([number, text]) => [source.file + ":" + number, text.trim()])));
const named = kernel => { const at = kernel.lines[0]; // by the user's line that made its result
  return at ? `${at[0].split(/[\\/]/).pop()}:${at[1]}  ${texts.get(key(at)) || ""}` : kernel.name; };
const native = new Map(); // functions of LLVM are in the order of the listing, where each has one of its own
const symbols = [...(all.texts.llvm || "").matchAll(/^define [^(\n]*@(\w+)\(/gm)].map(m => m[1]);
if (symbols.length === functions.size) [...functions.values()].forEach((owners, n) => native.set(symbols[n], owners));
const parts = {
  kernels(parent) {
    const timed = all.kernels.reduce((sum, kernel) => sum + (kernel.seconds || 0), 0);
    for (const kernel of all.kernels) {
      const row = make(parent, "div", {class: "kernel row" + (kernel.path.includes(".") ? " part" : "")});
      make(row, "i", {class: "number", style: `background:${colourOf(kernel.path)}`}, kernel.path);
      const what = make(row, "div");
      make(what, "b", {}, kernel.tiles ? `${inside(kernel.path).length - 1} kernels in ${kernel.tiles} row tiles` : named(kernel));
      const facts = [kernel.name === kernel.kind ? kernel.kind : `${kernel.kind} ${kernel.name}`, bytes(kernel.bytes)];
      if (kernel.operations) facts.push(`${many(kernel.operations)} operations`);
      if (kernel.seconds !== undefined) facts.push(`${time(kernel.seconds)} (${(100 * kernel.seconds / (timed || 1)).toFixed(0)} %)`);
      make(what, "span", {class: "facts"}, facts.join(", "));
      register("kernel", kernel.path, row);
      pointed(row, () => ofKernel(kernel.path));
    }
    if (all.kernels.length && !timed) make(parent, "p", {class: "why"}, "The page has no times. Pass the result of rlx.profile for the same arguments to page or save.");
  },
  loops: parent => code(parent, all.texts.loops || "", functions),
  llvm: parent => code(parent, all.texts.llvm || "", native),
  assembly: parent => make(parent, "pre", {}, all.texts.assembly || ""),
  fusion(parent) { // equal lines once, with their number
    const counts = new Map();
    for (const line of (all.fusion || "").split("\n")) counts.set(line, (counts.get(line) || 0) + 1);
    for (const [line, count] of counts) make(parent, "div", {class: "row why"}, line + (count > 1 ? `  (${count} times)` : ""));
  },
  memory(parent) {
    const memory = all.memory, wide = 560, tall = 380, edge = 66, foot = 34;
    make(parent, "h2", {}, `temporaries: ${bytes(memory.arena)}; at most ${bytes(memory.peak)} are needed at once`);
    if (!memory.arena) return;
    const picture = make(parent, "svg:svg", {class: "memory", viewBox: `0 0 ${wide} ${tall}`, width: "100%"});
    const count = Math.max(memory.kernels, 1), across = (wide - edge - 4) / count, up = (tall - foot - 8) / memory.arena;
    const height = place => tall - foot - place * up;
    for (let step = 0; step <= 4; step++) { // bytes upwards
      const place = memory.arena * step / 4;
      make(picture, "svg:path", {class: "grid", d: `M${edge} ${height(place)}H${wide - 4}`});
      make(picture, "svg:text", {class: "tick", x: edge - 5, y: height(place) + 4, "text-anchor": "end"}, bytes(Math.round(place)));
    }
    for (let kernel = 0, every = Math.ceil(count / 16); kernel < count; kernel += every) // kernels to the right
      make(picture, "svg:text", {class: "tick", x: edge + (kernel + 0.5) * across, y: tall - foot + 14, "text-anchor": "middle"}, kernel);
    make(picture, "svg:text", {class: "tick", x: edge + (wide - edge) / 2, y: tall - 4, "text-anchor": "middle"}, "kernel, in order of execution");
    const list = make(parent, "div");
    memory.buffers.forEach((b, number) => {
      const x = edge + b.first * across, y = height(b.offset + b.bytes), w = (b.last - b.first + 1) * across, h = b.bytes * up;
      const rect = make(picture, "svg:rect", {class: "buffer", x, y, width: w, height: h, fill: colour(number)});
      const text = `${b.name} ${b.dtype}, ${bytes(b.bytes)} at ${b.offset}, kernels ${b.first} to ${b.last}`;
      make(rect, "svg:title", {}, text);
      const label = [`${b.name}  ${bytes(b.bytes)}`, b.name].find(said => said.length * 6.7 + 8 < w);
      if (h > 12 && label) make(picture, "svg:text", {class: "inside", x: x + 4, y: y + Math.min(h / 2 + 4, 16)}, label);
      const row = make(list, "div", {class: "row"});
      make(row, "i", {class: "number", style: `background:${colour(number)}`}, " ");
      row.append(text);
      const found = () => { const ends = [ofKernel(`${b.first}`), ofKernel(`${b.last}`)]; return [0, 1, 2].map(n => [...ends[0][n], ...ends[1][n]]); };
      for (const element of [rect, row]) {
        for (const kernel of new Set([b.first, b.last])) register("kernel", `${kernel}`, element);
        pointed(element, found);
      }
    });
  },
  statistics: parent => make(parent, "pre", {}, all.texts.statistics || ""),
  traced: parent => make(parent, "pre", {}, all.texts.hir || ""),
};
const drawn = {};
function show(name) {
  for (const [other, part] of Object.entries(drawn)) part.hidden = other !== name;
  for (const button of tabs.children) button.classList.toggle("chosen", button.id === "tab-" + name);
  if (!drawn[name]) { drawn[name] = make(body, "div", {id: "part-" + name}); parts[name](drawn[name]); }
}
for (const name of Object.keys(parts)) make(tabs, "button", {id: "tab-" + name}, name).onclick = () => show(name);
show("kernels");
begin();
document.documentElement.dataset.ready = "yes";
