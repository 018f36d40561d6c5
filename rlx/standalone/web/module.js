// Written by rlx (rlx.export_wasm). The function NAME as an ES module, for browsers, Node and Deno.

// The leaves of its arguments and results. Elements of "float16" and narrower types are their codes.
export const leaves = LEAVES;

const kinds = { BigInt64Array, BigUint64Array, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Uint8Array,
  Uint16Array, Uint32Array };
const ALIGNMENT = 16, PAGE = 65536;

async function compiled(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof URL && source.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(source));
  }
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const response = source instanceof Response ? source : await fetch(source);
  if (!response.ok) throw new Error(`${response.url} could not be loaded: ${response.status} ${response.statusText}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

// Loads the module beside this file, or a URL, a Response, bytes or a WebAssembly.Module.
export async function load(source = new URL("./FILE.wasm", import.meta.url)) {
  const { exports } = await WebAssembly.instantiate(await compiled(source), {});
  exports._initialize?.();
  const places = [];
  let end = exports.__heap_base.value;
  for (const leaf of leaves) {
    end = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
    places.push(end);
    end += leaf.bytes;
  }
  const missing = end - exports.memory.buffer.byteLength;
  if (missing > 0) exports.memory.grow(Math.ceil(missing / PAGE));
  const arrays = {};
  leaves.forEach(({ name, array, length }, n) => {
    arrays[name] = new kinds[array](exports.memory.buffer, places[n], length);
  });
  // Runs the function on `arrays`, the memory of its arguments and results.
  const run = () => { exports.NAME(...places); };
  // Copies values to arguments, runs the function, and returns the arrays that it wrote.
  const call = (values) => {
    for (const [name, value] of Object.entries(values)) {
      const leaf = leaves.find((leaf) => leaf.name === name && leaf.argument);
      if (!leaf) throw new Error(`NAME has no argument ${name}; it has ${leaves.filter((l) => l.argument).map((l) => l.name).join(", ")}.`);
      if (value.length !== leaf.length) throw new Error(`${name} has ${leaf.length} elements; ${value.length} were passed.`);
      arrays[name].set(value);
    }
    run();
    return Object.fromEntries(leaves.filter((leaf) => leaf.written).map(({ name }) => [name, arrays[name]]));
  };
  return { arrays, call, run };
}
