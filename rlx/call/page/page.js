"use strict";
// One program, shown three times: the user's lines, the graph of equations, and what the compiler made of them.
// Whatever is pointed at lights what belongs to it in the other two.
const all = JSON.parse(document.getElementById("contents").textContent);
const WIDTH = 110, HEIGHT = 44, BOX = 96, TALL = 24;
const SVG = "http://www.w3.org/2000/svg";
const colour = kernel => `hsl(${(kernel * 67) % 360} 55% 52%)`;
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
  if (node.kernel !== undefined) { if (!belongs.kernel.has(node.kernel)) belongs.kernel.set(node.kernel, []); belongs.kernel.get(node.kernel).push(number); }
});
const ofNode = number => { const n = nodes[number]; return [n.line ? [key(n.line)] : [], n.kernel === undefined ? [] : [n.kernel], [number]]; };
const ofLine = k => { const found = belongs.line.get(k) || []; return [[k], [...new Set(found.map(n => nodes[n].kernel).filter(x => x !== undefined))], found]; };
const ofKernel = kernel => { const found = belongs.kernel.get(kernel) || [];
  return [[...new Set([...(all.kernels[kernel] || {lines: []}).lines.map(key), ...found.filter(n => nodes[n].line).map(n => key(nodes[n].line))])], [kernel], found]; };

// ------------------------------------------------------------ head and the user's lines
const head = make(document.body, "header");
make(head, "b", {}, all.title);
make(head, "span", {}, `${nodes.length - all.inputs} equations, ${all.kernels.length} kernels`);
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
const results = new Set(all.graph.results);
nodes.forEach((node, number) => {
  const kind = (node.how === "input" ? " input" : "") + (results.has(number) ? " result" : "");
  const group = make(svg, "svg:g", {class: "node" + kind, transform: `translate(${xs[number] - BOX / 2} ${ys[number]})`});
  make(group, "svg:rect", {width: BOX, height: TALL, rx: 4});
  if (node.kernel !== undefined) make(group, "svg:rect", {width: 4, height: TALL, rx: 2, style: `fill:${colour(node.kernel)};stroke:none`});
  make(group, "svg:text", {x: 9, y: 16}, node.name.length > 13 ? node.name.slice(0, 12) + "…" : node.name);
  register("node", number, group);
  pointed(group, () => { told.textContent = node.text + (node.type ? "  # " + node.type : "") + "  " + node.how; return ofNode(number); });
});
const told = make(panel, "p");
const buttons = make(panel, "div");
const whole = () => [left - BOX, -20, Math.max(right - left + 2 * BOX, 1), low + TALL + 40];
let view = whole();
const look = () => svg.setAttribute("viewBox", view.join(" "));
function zoom(factor, x = view[0] + view[2] / 2, y = view[1] + view[3] / 2) {
  view = [x - (x - view[0]) * factor, y - (y - view[1]) * factor, view[2] * factor, view[3] * factor]; look();
}
function begin() { // as large as can be read: the top of the program
  const box = svg.getBoundingClientRect(), w = Math.max(box.width, 300), h = Math.max(box.height, 300);
  const scale = Math.max(1, Math.min(1.6, Math.max((right - left + 2 * BOX) / w, 1)));
  view = [(left + right) / 2 - w * scale / 2, -20, w * scale, h * scale]; look();
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
    for (const kernel of owners.get(name) || []) register("kernel", kernel, pre);
    if (owners.has(name)) pointed(pre, () => ofKernel(owners.get(name)[0]));
  }
}
const functions = new Map();
all.kernels.forEach((kernel, number) => { for (const name of kernel.functions) { if (!functions.has(name)) functions.set(name, []); functions.get(name).push(number); } });
const native = new Map(); // functions of LLVM are in the order of the listing, where each has one of its own
const symbols = [...(all.texts.llvm || "").matchAll(/^define [^(\n]*@(\w+)\(/gm)].map(m => m[1]);
if (symbols.length === functions.size) [...functions.values()].forEach((owners, n) => native.set(symbols[n], owners));
const parts = {
  kernels(parent) {
    all.kernels.forEach((kernel, number) => {
      const row = make(parent, "div", {class: "kernel row"});
      make(row, "i", {style: `color:${colour(number)}`}, number);
      row.append(kernel.name);
      register("kernel", number, row);
      pointed(row, () => ofKernel(number));
    });
  },
  loops: parent => code(parent, all.texts.loops || "", functions),
  llvm: parent => code(parent, all.texts.llvm || "", native),
  assembly: parent => make(parent, "pre", {}, all.texts.assembly || ""),
  fusion: parent => (all.fusion || "").split("\n").forEach(line => make(parent, "div", {class: "row why"}, line)),
  memory(parent) {
    const memory = all.memory, wide = 560, tall = 360;
    make(parent, "h2", {}, `arena ${memory.arena} B, at most ${memory.peak} B needed at once; kernels from left to right`);
    if (!memory.arena) return;
    const picture = make(parent, "svg:svg", {viewBox: `0 0 ${wide} ${tall}`, width: "100%"});
    const across = wide / Math.max(memory.kernels, 1), up = tall / memory.arena;
    memory.buffers.forEach((b, number) => {
      const rect = make(picture, "svg:rect", {class: "buffer", x: b.first * across, width: (b.last - b.first + 1) * across,
        y: tall - (b.offset + b.bytes) * up, height: b.bytes * up, fill: colour(number)});
      make(rect, "svg:title", {}, `${b.name} ${b.dtype}: ${b.bytes} B at ${b.offset}, kernels ${b.first} to ${b.last}`);
      for (const kernel of new Set([b.first, b.last])) register("kernel", kernel, rect);
      pointed(rect, () => { const found = [ofKernel(b.first), ofKernel(b.last)]; return [0, 1, 2].map(n => [...found[0][n], ...found[1][n]]); });
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
