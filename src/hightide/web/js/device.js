// The GPU that the browser offers, which of an export's plans it can run, and the kernels compiled for it.
import { DeviceLostError, UnsupportedError } from "./errors.js";

const FEATURES = ["subgroups", "shader-f16"];
const HELP = "see https://caniuse.com/webgpu, and chrome://gpu for what the browser says of its GPU";

/** An adapter opened, with the features that plans may use. */
export class Gpu {
  lost = "";
  /** @type {string[]} */
  problems = [];

  /** @param {GPUAdapter} adapter @param {GPUDevice} device */
  constructor(adapter, device) {
    this.adapter = adapter;
    this.device = device;
    this.whenLost = device.lost.then(({ message, reason }) => (this.lost = message || reason || "unknown"));
    device.addEventListener("uncapturederror", ({ error }) => this.problems.push(error.message));
  }

  /** @param {string[]} without features that are not to be used */
  static async open(without = []) {
    if (!navigator.gpu) {
      const secure = globalThis.isSecureContext ? "" : ", or the page is not served over https";
      throw new UnsupportedError(`this browser has no WebGPU${secure}: ${HELP}`);
    }
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) throw new UnsupportedError(`this browser found no GPU that it can use: ${HELP}`);
    const found = FEATURES.filter((name) => adapter.features.has(name) && !without.includes(name));
    return new Gpu(adapter, await adapter.requestDevice({ requiredFeatures: /** @type {any} */ (found) }));
  }

  get name() {
    const { vendor, architecture, device, description } = this.adapter.info;
    return description || [vendor, architecture, device].filter(Boolean).join(" ") || "a GPU";
  }

  /** Whether it is a CPU. */
  get software() {
    return Boolean(this.adapter.info["isFallbackAdapter"]) || /swiftshader|llvmpipe|basic render/i.test(this.name);
  }

  /** @param {Needs} needs */
  canRun({ software, lanes, features }) {
    const { device, adapter } = this;
    const has = device.features.has("subgroups") ? (adapter.info.subgroupMinSize ?? 4) : 0;
    return (!software || this.software) && has >= lanes && features.every((name) => device.features.has(name));
  }

  /** Throw what went wrong since the last time, if anything did. */
  check() {
    if (this.lost) throw new DeviceLostError(`the GPU was lost (${this.lost})`);
    if (this.problems.length) throw new Error(`the GPU refused a command: ${this.problems.splice(0)[0]}`);
  }

  /** @param {number[]} sizes @param {(n: number) => number} usage @returns buffers, or an error if there is no room */
  async allocated(sizes, usage) {
    this.device.pushErrorScope("out-of-memory");
    const made = sizes.map((size, n) => this.device.createBuffer({ size, usage: usage(n) }));
    const full = await this.device.popErrorScope();
    this.check();
    if (!full) return made;
    const room = `${Math.ceil(sizes.reduce((sum, size) => sum + size, 0) / 2 ** 20)} MiB`;
    throw new UnsupportedError(`the GPU has no room for ${room}: close other tabs, or take a smaller model or context`);
  }

  /** @param {GPUBuffer} buffer until it can be read */
  async mapped(buffer) {
    try {
      await buffer.mapAsync(GPUMapMode.READ);
    } catch (error) {
      await Promise.race([this.whenLost, new Promise((resolve) => setTimeout(resolve, 100))]);
      this.check();
      throw error;
    }
    this.check();
  }
}

/** The pipelines of one device, by the hash of their text; each is compiled once. */
export class Pipelines {
  /** @type {Map<string, Promise<GPUComputePipeline>>} */
  #made = new Map();
  /** @type {Map<string, GPUBindGroupLayout>} */
  #layouts = new Map();

  /** @param {Gpu} gpu @param {Record<string, Kernel>} kernels */
  constructor(gpu, kernels) {
    this.gpu = gpu;
    this.kernels = kernels;
  }

  /** @param {string[]} names @param {(done: number, total: number) => void} [tell] @returns the pipeline of each */
  compile(names, tell = () => {}) {
    const wanted = [...new Set(names)];
    let done = 0;
    for (const name of wanted) {
      const made = this.#made.get(name) ?? this.#compile(name);
      this.#made.set(name, made);
      made.then(() => tell(++done, wanted.length)).catch(() => {}); // who waits for it is told
    }
    return Promise.all(names.map((name) => /** @type {Promise<GPUComputePipeline>} */ (this.#made.get(name))));
  }

  async #compile(name) {
    const { device } = this.gpu;
    const { text: code, name: label } = this.kernels[name];
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.layout(name)] });
    const module = device.createShaderModule({ code, label });
    try {
      return await device.createComputePipelineAsync({ layout, compute: { module, entryPoint: "main" }, label });
    } catch (error) {
      this.gpu.check();
      throw new Error(`kernel ${label} does not compile: ${error.message}`);
    }
  }

  /** @param {string} name */
  layout(name) {
    const { reads, writes, live } = this.kernels[name];
    const key = `${reads} ${writes} ${live}`;
    let layout = this.#layouts.get(key);
    if (!layout) {
      /** @type {GPUBufferBindingLayout[]} by binding */
      const buffers = [{ type: "uniform", hasDynamicOffset: true }];
      if (live) buffers[1] = { type: "uniform" };
      for (let n = 0; n < reads + writes; n++) buffers[n + 2] = { type: n < reads ? "read-only-storage" : "storage" };
      const visibility = GPUShaderStage.COMPUTE;
      const entries = buffers.map((buffer, binding) => ({ binding, visibility, buffer })).filter(Boolean);
      layout = this.gpu.device.createBindGroupLayout({ entries });
      this.#layouts.set(key, layout);
    }
    return layout;
  }
}
