// hightide in a browser: a folder made by `hightide web`, on the GPU of whoever opens the page. hightide.d.ts says what
// there is to call.
import { revived } from "./errors.js";

export { DeviceLostError, DownloadError, InputError, UnsupportedError } from "./errors.js";

/** The worker: calls to it, and what comes back. */
class Engine {
  #worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  #next = 0;
  /** @type {Map<number, any>} */
  #waiting = new Map();

  constructor() {
    this.#worker.onmessage = ({ data: { id, result, error, told } }) => {
      const { resolve, reject, tell } = this.#waiting.get(id);
      if (told) return tell?.(told);
      this.#waiting.delete(id);
      return error ? reject(revived(error)) : resolve(result);
    };
    this.#worker.onerror = ({ message }) => {
      const error = new Error(`the engine failed: ${message ?? "see the browser's console"}`);
      for (const { reject } of this.#waiting.values()) reject(error);
    };
  }

  /** @param {string} call @param {any} given @param {(told: any) => void} [tell] */
  call(call, given, tell) {
    const id = this.#next++;
    const result = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, tell }));
    this.#worker.postMessage({ id, call, given });
    return { id, result };
  }

  end() {
    this.#worker.terminate();
  }
}

/** What was loaded, on the GPU. */
class Loaded {
  /** @param {Engine} engine @param {About} about */
  constructor(engine, about) {
    this.engine = engine;
    this.about = about;
  }

  reset() {
    return this.engine.call("reset", {}).result;
  }

  close() {
    this.engine.end();
  }
}

class WebModel extends Loaded {
  /** @type {Ending | null} of the last answer */
  last = null;

  /** @param {Prompt} prompt @param {GenerateOptions} [options] @returns {AsyncGenerator<Piece>} */
  async *generate(prompt, { signal, ...options } = {}) {
    /** @type {Piece[]} */
    const pieces = [];
    let ended = false;
    let wake = (_) => {};
    const { id, result } = this.engine.call("generate", { prompt, options }, (piece) => wake(pieces.push(piece)));
    const stop = () => this.engine.call("stop", { answer: id });
    const done = result.finally(() => wake((ended = true)));
    done.catch(() => {}); // it is told of below
    signal?.addEventListener("abort", stop);
    if (signal?.aborted) stop();
    try {
      while (!ended || pieces.length) {
        if (pieces.length) yield /** @type {Piece} */ (pieces.shift());
        else await new Promise((resolve) => (wake = resolve));
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      if (!ended) stop();
      this.last = await done;
    }
  }

  /** @param {Prompt} prompt */
  encode(prompt) {
    return this.engine.call("encode", { prompt }).result;
  }
}

class WebProgram extends Loaded {
  /** @param {TensorLike[]} inputs */
  forward(...inputs) {
    return this.engine.call("forward", { inputs }).result;
  }
}

/** @param {any} Kind @param {string} kind @param {string | URL} folder @param {any} options */
async function open(Kind, kind, folder, { onProgress, ...choice }) {
  const engine = new Engine();
  const base = new URL(folder, globalThis.location.href).href.replace(/\/*$/, "/");
  try {
    return new Kind(engine, await engine.call("load", { base, kind, choice }, onProgress).result);
  } catch (error) {
    engine.end();
    throw error;
  }
}

export const load = (folder, options = {}) => open(WebModel, "model", folder, options);
export const loadProgram = (folder, options = {}) => open(WebProgram, "program", folder, options);
