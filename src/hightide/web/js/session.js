// A graph on the GPU: a level is a list of dispatches that Python has planned, and a run replays it.
import { InputError } from "./errors.js";
import { evaluate } from "./formulas.js";

const BLOCK = 256; // bytes of a dispatch's parameters
const MOST_GROUPS = 65535; // workgroups of one dimension

/** @type {Record<string, any>} what elements on the GPU are here */
const ARRAYS = {
  float32: Float32Array,
  float16: globalThis["Float16Array"] ?? Uint16Array,
  int32: Int32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bool: Uint8Array,
};

export class Session {
  /** @type {GPUBuffer[]} */
  buffers = [];
  /** @type {Map<string, Level>} */
  #levels = new Map();
  /** @type {GPUBindGroup[]} */
  #groups = [];
  /** @type {GPUBuffer[]} readback buffers that nobody waits for */
  #spare = [];
  /** @type {GPUBuffer | undefined} */
  #params;
  /** @type {Map<number, number>} where each parameter block is */
  #blocks = new Map();

  /**
   * @param {Gpu} gpu
   * @param {Pipelines} pipelines
   * @param {SessionData} data
   * @param {number[][]} params all parameter blocks of the export
   */
  constructor(gpu, pipelines, data, params) {
    this.gpu = gpu;
    this.pipelines = pipelines;
    this.data = data;
    this.params = params;
    const [arena, at] = data.symints.place;
    this.arena = arena; // the buffer of the small inputs, and of the SymInts behind them
    this.staging = new Uint8Array(at + 4 * Math.max(1, data.symints.count)); // what is written to it
    this.symints = new Int32Array(this.staging.buffer, at, data.symints.count);
    this.byDims = new Map(data.levels.map((level) => [JSON.stringify(level.dims), level]));
  }

  /** The kernels of a level. */
  kernels({ course }) {
    return this.data.courses[course].groups.map((number) => this.data.groups[number][0]);
  }

  /** Buffers and parameters. */
  async allocate() {
    const { device } = this.gpu;
    const { STORAGE, UNIFORM, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const usage = (n) => STORAGE | COPY_SRC | COPY_DST | (n === this.arena ? UNIFORM : 0);
    this.buffers = await this.gpu.allocated(this.data.buffers, usage);
    const used = new Set(this.data.levels.flatMap((level) => level.slots.map(([block]) => block)));
    this.#blocks = new Map([...used].map((block, n) => [block, n * BLOCK]));
    const words = new Uint32Array(Math.max(1, used.size) * (BLOCK / 4));
    for (const [block, at] of this.#blocks) words.set(this.params[block], at / 4);
    this.#params = device.createBuffer({ size: words.byteLength, usage: UNIFORM | COPY_DST });
    device.queue.writeBuffer(this.#params, 0, words);
  }

  /** @param {number} buffer @param {number} offset @param {any} bytes whole words */
  write(buffer, offset, bytes) {
    this.gpu.device.queue.writeBuffer(this.buffers[buffer], offset, bytes);
  }

  /** State as at the start, where it starts as zeros. */
  clearState() {
    const encoder = this.gpu.device.createCommandEncoder();
    for (const buffer of this.data.state) encoder.clearBuffer(this.buffers[buffer]);
    this.gpu.device.queue.submit([encoder.finish()]);
  }

  /** @param {number[][]} dims of all inputs @returns {Promise<Level>} made ready */
  async level(dims) {
    const key = JSON.stringify(dims);
    let level = this.#levels.get(key);
    if (!level) {
      const data = this.byDims.get(key);
      if (!data) throw new InputError(`the program has no plan for inputs of ${dims.map((d) => `[${d}]`).join(", ")}`);
      level = this.#prepare(data, await this.pipelines.compile(this.kernels(data)));
      this.#levels.set(key, level);
    }
    return level;
  }

  #prepare(data, pipelines) {
    const course = this.data.courses[data.course];
    const commands = course.groups.map((number, n) => {
      const [block, grid] = data.slots[course.slots[n]];
      const [x, y] = typeof grid === "number" ? fold(grid) : [0, 1];
      return { pipeline: pipelines[n], group: this.#group(number), offset: this.#blocks.get(block) ?? 0, x, y, grid };
    });
    return { data, commands, live: commands.filter(({ grid }) => typeof grid !== "number") };
  }

  #group(number) {
    if (this.#groups[number]) return this.#groups[number];
    const [kernel, ...places] = this.data.groups[number];
    const resources = [{ buffer: /** @type {GPUBuffer} */ (this.#params), size: BLOCK }];
    if (this.pipelines.kernels[kernel].live) resources[1] = this.#resource(this.data.symints.place);
    places.forEach((place, n) => (resources[n + 2] = this.#resource(place)));
    const entries = resources.map((resource, binding) => ({ binding, resource })).filter(Boolean);
    const layout = this.pipelines.layout(kernel);
    return (this.#groups[number] = this.gpu.device.createBindGroup({ layout, entries }));
  }

  /** @param {Place} place @returns {any} */
  #resource(place) {
    const [buffer, offset, size] = typeof place === "number" ? [place] : place;
    return { buffer: this.buffers[buffer], offset, size };
  }

  // ---- a run

  /**
   * Start a run: one write, one submit.
   * @param {Level} level
   * @param {any[]} inputs typed arrays as the GPU holds them; null for what is there already
   * @param {{want?: number[], feed?: [number, number][]}} [how] outputs to bring back; outputs to copy to inputs
   * @returns {Ticket}
   */
  launch(level, inputs, { want = [], feed = [] } = {}) {
    this.gpu.check();
    const read = (input, flat) => Number(inputs[input]?.[flat] ?? 0);
    const symints = level.data.symints.map((formula) => evaluate(formula, read));
    this.symints.set(symints);
    this.data.inputs.forEach((spec, n) => this.#stage(spec, inputs[n]));
    this.write(this.arena, 0, this.staging);
    for (const command of level.live) [command.x, command.y] = fold(Math.max(0, evaluate(command.grid, read)));
    const encoder = this.gpu.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    let current;
    for (const { pipeline, group, offset, x, y } of level.commands) {
      if (pipeline !== current) pass.setPipeline((current = pipeline));
      pass.setBindGroup(0, group, [offset]);
      pass.dispatchWorkgroups(x, y);
    }
    pass.end();
    for (const [output, input] of feed) {
      const [to, at] = /** @type {number[]} */ (this.data.inputs[input].place);
      const [from, start, bytes] = this.#whereIs(level, output);
      encoder.copyBufferToBuffer(this.buffers[from], start, this.buffers[to], at, bytes);
    }
    const { buffer, parts } = this.#bringBack(level, want, encoder);
    this.gpu.device.queue.submit([encoder.finish()]);
    return { buffer, parts, level, symints };
  }

  #stage(spec, array) {
    if (!array?.length || !spec.place) return;
    const [buffer, offset] = spec.place;
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    if (buffer === this.arena) return this.staging.set(bytes, offset);
    const whole = new Uint8Array(Math.ceil(bytes.length / 4) * 4); // words
    whole.set(bytes);
    this.write(buffer, offset, whole);
  }

  /**
   * An output: [buffer, offset, bytes]; no bytes for a SymInt.
   * @param {Level} level @param {number} output
   */
  #whereIs(level, output) {
    const { place, held } = this.data.outputs[output];
    if (place === undefined) return [0, 0, 0];
    const [buffer, offset] = typeof place === "number" ? [place, 0] : place;
    return [buffer, offset, words(level.data.outputs[output], held) * 4];
  }

  #bringBack(level, want, encoder) {
    let size = 0;
    /** @type {Ticket["parts"]} */
    const parts = want.map((output) => {
      const [at, bytes] = [size, this.#whereIs(level, output)[2]];
      size += Math.ceil(bytes / 16) * 16;
      return [output, at, bytes];
    });
    const found = this.#spare.findIndex((one) => one.size >= size && one.size <= 4 * size + 16);
    const readback = { size: Math.max(16, size), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST };
    const buffer = found < 0 ? this.gpu.device.createBuffer(readback) : this.#spare.splice(found, 1)[0];
    for (const [output, at, bytes] of parts) {
      const [from, start] = this.#whereIs(level, output);
      if (bytes) encoder.copyBufferToBuffer(this.buffers[from], start, buffer, at, bytes);
    }
    return { buffer, parts };
  }

  /** @param {Ticket} ticket @returns {Promise<Tensor[]>} what the run was to bring back */
  async collect({ buffer, parts, level, symints }) {
    await this.gpu.mapped(buffer);
    const bytes = buffer.getMappedRange().slice(0);
    buffer.unmap();
    this.#spare.push(buffer);
    return parts.map(([output, at]) => {
      const { held, symint } = this.data.outputs[output];
      const dims = level.data.outputs[output];
      if (symint !== undefined) return { data: Int32Array.of(symints[symint]), dims: [] };
      return { data: new ARRAYS[held](bytes.slice(at), 0, count(dims)), dims };
    });
  }

  // ---- a program's call

  /** @param {TensorLike[]} given which are checked before anything is written */
  async run(given) {
    const { inputs, outputs } = this.data;
    if (given.length !== inputs.length) {
      const names = inputs.map(({ name }) => name).join(", ");
      throw new InputError(`the program takes ${inputs.length} inputs (${names}); ${given.length} were given`);
    }
    const arrays = given.map((tensor, n) => checked(inputs[n], tensor));
    const level = await this.level(given.map(({ dims }) => [...dims]));
    const read = (input, flat) => Number(arrays[input][flat]);
    for (const [formula, low, high, message] of level.data.bounds) {
      const value = evaluate(formula, read);
      if (value < low || value > high) throw new InputError(message.replaceAll("{value}", String(value)));
    }
    for (const [input, low, high, what] of level.data.indices) {
      const bad = arrays[input].find((value) => value < low || value > high);
      if (bad === undefined) continue;
      throw new InputError(`input ${inputs[input].name} has ${what} ${bad}; it must be in ${low}..${high}`);
    }
    return this.collect(this.launch(level, arrays, { want: outputs.map((_, n) => n) }));
  }

  close() {
    for (const buffer of [...this.buffers, ...this.#spare]) buffer.destroy();
    this.#params?.destroy();
  }
}

/** @param {number} groups @returns {[number, number]} as WebGPU takes them, over two dimensions where one has no room */
function fold(groups) {
  const y = Math.max(1, Math.ceil(groups / MOST_GROUPS));
  return [Math.ceil(groups / y), y];
}

const count = (dims) => dims.reduce((product, size) => product * size, 1);
const words = (dims, held) => Math.ceil((count(dims) * ARRAYS[held].BYTES_PER_ELEMENT) / 4);

/**
 * An input as the GPU holds it, or InputError.
 * @param {InputData} spec @param {TensorLike} tensor
 */
function checked({ name, held, dynamic, dims: most }, { data, dims }) {
  if (!Array.isArray(dims) || dims.length !== most.length) {
    throw new InputError(`input ${name} has dims [${dims}]; the program takes rank ${most.length} [${most}]`);
  }
  dims.forEach((size, axis) => {
    if (Number.isInteger(size) && size >= 0 && (dynamic ? size <= most[axis] : size === most[axis])) return;
    const limit = `${dynamic ? "at most" : "exactly"} ${most[axis]}`;
    throw new InputError(`dim ${axis} of input ${name} is ${size}; the program takes ${limit}`);
  });
  if (data.length !== count(dims)) {
    throw new InputError(`input ${name} has ${data.length} elements; dims [${dims}] are ${count(dims)}`);
  }
  if (data instanceof ARRAYS[held]) return data;
  const numbers = Array.from(data, Number);
  const bad = held === "int32" ? numbers.find((value) => value !== (value | 0)) : undefined;
  if (bad !== undefined) throw new InputError(`input ${name} has ${bad}, which is not a 32-bit integer`);
  return ARRAYS[held].from(numbers);
}
