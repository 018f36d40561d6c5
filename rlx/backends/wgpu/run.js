// Runs a function that rlx.export_wgsl wrote: in a browser, or wherever JavaScript has WebGPU.
//   const f = await RlxFunction.create(wgsl, JSON.parse(launches));
//   const [y] = await f.run(new Float32Array([1, 2, 3]));
// Arguments are typed arrays in row-major order, one for each entry of `launches.inputs`; float16, bfloat16 and bool
// are given and returned as their bytes (Uint16Array, Uint8Array), complex64 as pairs (Float32Array).
const ARRAYS = {
  float32: Float32Array, complex64: Float32Array, int32: Int32Array, uint32: Uint32Array, int16: Int16Array,
  uint16: Uint16Array, int8: Int8Array, float16: Uint16Array, bfloat16: Uint16Array,
};
const words = (bytes) => Math.ceil(bytes / 4) * 4;

class RlxFunction {
  static async create(wgsl, description, device) {
    if (!device) {
      const adapter = await navigator.gpu?.requestAdapter();
      if (!adapter) throw new Error("WebGPU has no adapter here");
      device = await adapter.requestDevice();
    }
    const f = new RlxFunction();
    Object.assign(f, description, { device, pipelines: {} });
    f.memory = device.createBuffer({ size: Math.max(4, f.bytes), usage: 0x80 | 0x08 | 0x04 }); // STORAGE, COPY_DST, COPY_SRC
    for (const { start, data } of f.constants) f.put(start, Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
    const entries = [["uniform", 0], ["storage", 1]].map(([type, binding]) => ({ binding, visibility: 4, buffer: { type } }));
    f.layout = device.createBindGroupLayout({ entries });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [f.layout] });
    for (const code of wgsl.split(/^(?=\/\/ kernel )/m).filter((text) => text.trim())) {
      const entryPoint = code.match(/^\/\/ kernel (\w+):/)[1];
      const module = device.createShaderModule({ code, label: entryPoint });
      f.pipelines[entryPoint] = await device.createComputePipelineAsync({ layout, compute: { module, entryPoint } });
    }
    f.groups = f.launches.map(({ sizes }) => {
      const buffer = device.createBuffer({ size: sizes.length * 4, usage: 0x40 | 0x08 }); // UNIFORM, COPY_DST
      device.queue.writeBuffer(buffer, 0, new Uint32Array(sizes));
      const resources = [buffer, f.memory].map((given, binding) => ({ binding, resource: { buffer: given } }));
      return device.createBindGroup({ layout: f.layout, entries: resources });
    });
    return f;
  }

  put(start, bytes) {
    const whole = new Uint8Array(words(bytes.length));
    whole.set(bytes);
    this.device.queue.writeBuffer(this.memory, start, whole);
  }

  async run(...arrays) {
    if (arrays.length !== this.inputs.length) throw new Error(`${this.name} takes ${this.inputs.length} arrays`);
    this.inputs.forEach(({ name, start, bytes }, n) => {
      const { buffer, byteOffset, byteLength } = arrays[n];
      if (byteLength !== bytes) throw new Error(`${this.name}: ${name} has ${bytes} bytes, not ${byteLength}`);
      this.put(start, new Uint8Array(buffer, byteOffset, byteLength));
    });
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    this.launches.forEach(({ kernel, grid }, n) => {
      pass.setPipeline(this.pipelines[kernel]);
      pass.setBindGroup(0, this.groups[n]);
      pass.dispatchWorkgroups(...grid);
    });
    pass.end();
    const results = this.outputs.map(({ start, bytes }) => {
      const target = this.device.createBuffer({ size: Math.max(4, words(bytes)), usage: 0x01 | 0x08 }); // MAP_READ, COPY_DST
      if (bytes) encoder.copyBufferToBuffer(this.memory, start, target, 0, words(bytes));
      return target;
    });
    this.device.queue.submit([encoder.finish()]);
    return Promise.all(results.map(async (target, n) => {
      await target.mapAsync(1);
      const bytes = target.getMappedRange().slice(0, this.outputs[n].bytes);
      target.destroy();
      return new (ARRAYS[this.outputs[n].dtype] ?? Uint8Array)(bytes);
    }));
  }
}
if (typeof module !== "undefined") module.exports = { RlxFunction };
