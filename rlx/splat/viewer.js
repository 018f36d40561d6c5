"use strict";
const contents = JSON.parse(document.getElementById("contents").textContent);

function numbers(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

const means = numbers(contents.means);
const shapes = numbers(contents.covariances); // xx xy xz yy yz zz
const paints = numbers(contents.colours); // red green blue opacity
const count = means.length / 3;
const canvas = document.getElementById("scene");
const gl = canvas.getContext("webgl2", { antialias: false, preserveDrawingBuffer: true });
const view = { turn: 0.5, tilt: -0.3 * contents.down, distance: contents.extent * 2.5, target: contents.centre.slice() };

const VERTEX = `#version 300 es
in vec2 corner; in vec3 mean; in vec3 first; in vec3 second; in vec4 paint;
uniform mat3 rotation; uniform vec3 eye; uniform vec2 focal; uniform vec2 size;
out vec2 offset; out vec4 colour;
void main() {
  vec3 t = rotation * (mean - eye);
  gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
  if (t.z < 0.01) return;
  mat3 spread = mat3(first.x, first.y, first.z, first.y, second.x, second.y, first.z, second.y, second.z);
  mat3 seen = rotation * spread * transpose(rotation);
  vec2 slope = clamp(t.xy / t.z, -1.3 * size / (2.0 * focal), 1.3 * size / (2.0 * focal));
  vec3 jx = vec3(focal.x, 0.0, -focal.x * slope.x) / t.z, jy = vec3(0.0, focal.y, -focal.y * slope.y) / t.z;
  float a = dot(jx, seen * jx) + 0.3, b = dot(jx, seen * jy), c = dot(jy, seen * jy) + 0.3;
  float middle = 0.5 * (a + c), gap = sqrt(max(0.25 * (a - c) * (a - c) + b * b, 0.0));
  float large = middle + gap, small = max(middle - gap, 0.1);
  vec2 axis = abs(b) > 1e-6 ? normalize(vec2(b, large - a)) : (a >= c ? vec2(1.0, 0.0) : vec2(0.0, 1.0));
  offset = corner * 3.33;
  vec2 pixels = offset.x * sqrt(large) * axis + offset.y * sqrt(small) * vec2(-axis.y, axis.x);
  vec2 place = t.xy / t.z * focal + pixels;
  gl_Position = vec4(place.x / size.x * 2.0, -place.y / size.y * 2.0, 0.0, 1.0);
  colour = paint;
}`;
const FRAGMENT = `#version 300 es
precision highp float;
in vec2 offset; in vec4 colour; out vec4 shown;
void main() {
  float alpha = min(0.99, colour.a * exp(-0.5 * dot(offset, offset)));
  if (alpha < 1.0 / 255.0) discard;
  shown = vec4(colour.rgb * alpha, alpha);
}`;

function shader(kind, text) {
  const made = gl.createShader(kind);
  gl.shaderSource(made, text);
  gl.compileShader(made);
  if (!gl.getShaderParameter(made, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(made));
  return made;
}

function start() {
  const program = gl.createProgram();
  gl.attachShader(program, shader(gl.VERTEX_SHADER, VERTEX));
  gl.attachShader(program, shader(gl.FRAGMENT_SHADER, FRAGMENT));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  gl.useProgram(program);
  const rows = new Float32Array(count * 13);
  const buffers = [gl.createBuffer(), gl.createBuffer()];
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers[0]);
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 1, -1, -1, 1, 1, 1]), gl.STATIC_DRAW);
  attribute(program, "corner", 2, 8, 0, 0);
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers[1]);
  [["mean", 3, 0], ["first", 3, 3], ["second", 3, 6], ["paint", 4, 9]].forEach(([name, size, at]) =>
    attribute(program, name, size, 52, 4 * at, 1));
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  return { program, rows };
}

function attribute(program, name, size, stride, offset, divisor) {
  const place = gl.getAttribLocation(program, name);
  gl.enableVertexAttribArray(place);
  gl.vertexAttribPointer(place, size, gl.FLOAT, false, stride, offset);
  gl.vertexAttribDivisor(place, divisor);
}

// the rows of the rotation into camera coordinates (right, down, forward), and the eye
function camera() {
  const [st, ct, su, cu] = [Math.sin(view.turn), Math.cos(view.turn), Math.sin(view.tilt), Math.cos(view.tilt)];
  const forward = [-st * cu, -su, ct * cu];
  const right = [ct, 0, st];
  const down = [
    forward[1] * right[2] - forward[2] * right[1],
    forward[2] * right[0] - forward[0] * right[2],
    forward[0] * right[1] - forward[1] * right[0],
  ].map((x) => x * contents.down);
  const across = contents.down < 0 ? right.map((x) => -x) : right;
  return { rows: [across, down, forward], eye: view.target.map((x, n) => x - view.distance * forward[n]) };
}

function draw(state) {
  const { rows, eye } = camera();
  const depths = new Float32Array(count);
  for (let n = 0; n < count; n++) {
    for (let k = 0; k < 3; k++) depths[n] += rows[2][k] * (means[3 * n + k] - eye[k]);
  }
  const order = Uint32Array.from(depths.keys()).sort((a, b) => depths[b] - depths[a] || a - b);
  order.forEach((from, to) => {
    state.rows.set(means.subarray(3 * from, 3 * from + 3), 13 * to);
    state.rows.set(shapes.subarray(6 * from, 6 * from + 6), 13 * to + 3);
    state.rows.set(paints.subarray(4 * from, 4 * from + 4), 13 * to + 9);
  });
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * scale));
  gl.viewport(0, 0, canvas.width, canvas.height);
  gl.clearColor(...contents.background, 1);
  gl.clear(gl.COLOR_BUFFER_BIT);
  gl.bufferData(gl.ARRAY_BUFFER, state.rows, gl.DYNAMIC_DRAW);
  const uniform = (name) => gl.getUniformLocation(state.program, name);
  const columns = [0, 1, 2].flatMap((k) => rows.map((row) => row[k]));
  gl.uniformMatrix3fv(uniform("rotation"), false, columns);
  gl.uniform3fv(uniform("eye"), eye);
  const focal = 0.5 * canvas.height / Math.tan(0.5);
  gl.uniform2f(uniform("focal"), focal, focal);
  gl.uniform2f(uniform("size"), canvas.width, canvas.height);
  gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, count);
}

function listen(state) {
  let held = null;
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(state); });
  };
  // the front of the scene moves right and down
  const move = (right, down) => {
    view.turn -= right * contents.down;
    view.tilt = Math.max(-1.5, Math.min(1.5, view.tilt - down * contents.down));
    redraw();
  };
  canvas.addEventListener("pointerdown", (event) => {
    held = [event.clientX, event.clientY];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) return;
    move((event.clientX - held[0]) * 0.01, (event.clientY - held[1]) * 0.01);
    held = [event.clientX, event.clientY];
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    view.distance *= Math.exp(event.deltaY * 0.001);
    redraw();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move(...step);
  });
  window.addEventListener("resize", redraw);
}

if (gl === null) {
  document.getElementById("words").textContent = "This browser has no WebGL 2, which draws the scene.";
} else {
  const state = start();
  draw(state);
  listen(state);
}
document.documentElement.dataset.ready = "yes";
