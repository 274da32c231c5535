// An export on the GPU: the plan that fits the adapter is chosen and proven, then the weights are loaded.
import { problemOf } from "./checks.js";
import { Gpu, Pipelines } from "./device.js";
import { UnsupportedError } from "./errors.js";
import { Session } from "./session.js";

export class Runtime {
  /** @type {Gpu} */
  gpu;
  /** @type {Session} */
  session;
  /** @type {string[]} routes that answered wrong, and what was wrong */
  leftOut = [];
  variant = "";
  /** @type {number[][]} */
  #constants = [];

  /** @param {Files} files @param {any} manifest @param {Tell} tell @param {Choice} choice */
  constructor(files, manifest, tell, choice) {
    this.files = files;
    this.manifest = manifest;
    this.tell = tell;
    this.choice = choice;
  }

  /** Open the GPU, choose a plan, prove its kernels, and only then load the weights. */
  async open() {
    this.gpu = await Gpu.open(this.choice.without);
    const [tables, plan] = await Promise.all(["kernels.json.bin", "plan.json"].map((name) => this.json(name)));
    const pipelines = new Pipelines(this.gpu, tables.kernels);
    const { name, session, constants } = await this.#choose(plan.variants, pipelines, tables.params);
    this.variant = name;
    this.#constants = constants;
    this.session = new Session(this.gpu, pipelines, session, tables.params);
    await this.session.allocate();
    const told = (done, total) => this.tell({ stage: "kernels", done, total });
    const [one, other = one] = session.levels.slice(0, 2).map((level) => this.session.kernels(level));
    const shared = one.filter((kernel) => other.includes(kernel)); // whatever the level is; others when they are needed
    await Promise.all([pipelines.compile(shared, told), this.#load(constants)]);
    this.gpu.check();
  }

  /** @param {string} name of a file */
  json(name) {
    return this.files.json(name, this.manifest.files[name]);
  }

  async #choose(variants, pipelines, params) {
    /** @type {Map<number, string>} */
    const known = new Map();
    const wanted = this.choice.variant;
    const usable = variants.filter(({ name, needs }) => this.gpu.canRun(needs) && (wanted ?? name) === name);
    const month = new Date().toISOString().slice(0, 7); // drivers change: what was proven is proven again some day
    const hash = ["kernels.json.bin", "checks.json"].map((name) => this.manifest.files[name].sha256).join(" ");
    for (const variant of usable) {
      const proven = [variant.name, hash, navigator.userAgent, this.gpu.name, month].join(" ");
      if (await this.files.noted(proven)) return variant;
      const { checks } = await this.json("checks.json");
      const blobs = await this.files.bytes("checks.bin", this.manifest.files["checks.bin"]);
      for (const [done, number] of variant.checks.entries()) {
        this.tell({ stage: "checks", done, total: variant.checks.length });
        if (known.has(number)) continue;
        const problem = await problemOf(pipelines, params, checks[number], blobs);
        known.set(number, problem);
        if (problem) this.leftOut.push(`${checks[number].op} by ${checks[number].routes}: ${problem}`);
      }
      if (variant.checks.some((number) => known.get(number))) continue;
      await this.files.note(proven);
      return variant;
    }
    const found = this.leftOut.length ? `: ${this.leftOut.join("; ")}` : "";
    throw new UnsupportedError(`no plan of this model runs right on ${this.gpu.name}${found}`);
  }

  /** @param {number[][]} constants [buffer, offset in the weights, bytes] */
  async #load(constants) {
    let start = 0;
    for await (const shard of this.files.shards(this.manifest.weights, this.tell)) {
      const end = start + shard.byteLength;
      for (const [buffer, at, bytes] of constants) {
        const [first, last] = [Math.max(at, start), Math.min(at + bytes, end)];
        if (first >= last) continue;
        this.session.write(buffer, first - at, new Uint8Array(shard, first - start, last - first));
      }
      start = end;
    }
  }

  /** State as at the start: zeros, or what the file has. */
  async resetState() {
    this.session.clearState();
    const stored = this.#constants.filter(([buffer]) => this.session.data.state.includes(buffer));
    if (stored.length) await this.#load(stored);
  }

  /** After the GPU was lost: everything anew. */
  async reopen() {
    this.close();
    this.leftOut = [];
    await this.open();
  }

  close() {
    this.session?.close();
    this.gpu?.device.destroy();
  }
}
