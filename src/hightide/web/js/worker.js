// The engine, in a thread of its own: one model or program, told what to do by `hightide.js`.
import { InputError } from "./errors.js";
import { Files } from "./files.js";
import { Model } from "./model.js";
import { Program } from "./program.js";
import { Runtime } from "./runtime.js";

const OFTEN = 50; // ms between two reports of progress

/** @type {any} a Model or a Program */
let opened;
/** @type {Map<number, AbortController>} */
const answers = new Map();

const calls = {
  async load({ base, kind, choice }, tell) {
    const files = new Files(base);
    const manifest = await files.manifest();
    if (manifest.kind !== kind) {
      throw new InputError(`${base} has a ${manifest.kind}: open it with ${kind === "model" ? "loadProgram" : "load"}`);
    }
    let last = 0;
    const progress = (told) => {
      if (performance.now() - last < OFTEN && told.done < told.total) return;
      last = performance.now();
      tell(told);
    };
    const runtime = new Runtime(files, manifest, progress, choice);
    await runtime.open();
    opened = new (kind === "model" ? Model : Program)(runtime);
    await opened.prepare?.();
    const { gpu, variant: plan, leftOut } = runtime;
    const { notes, downloaded } = files;
    return { name: manifest.name, adapter: gpu.name, plan, leftOut, notes, downloaded, ...opened.about };
  },

  async generate({ prompt, options }, tell, id) {
    const control = new AbortController();
    answers.set(id, control);
    try {
      for await (const piece of opened.generate(prompt, { ...options, signal: control.signal })) tell(piece);
      const { finishReason, stats } = opened.answer;
      return { finishReason, stats };
    } finally {
      answers.delete(id);
    }
  },

  stop: async ({ answer }) => answers.get(answer)?.abort(),
  encode: async ({ prompt }) => opened.encode(prompt),
  forward: ({ inputs }) => opened.forward(inputs),
  reset: () => opened.reset(),
};

self.onmessage = async ({ data: { id, call, given } }) => {
  try {
    self.postMessage({ id, result: await calls[call](given, (told) => self.postMessage({ id, told }), id) });
  } catch ({ name, message }) {
    self.postMessage({ id, error: { name, message } });
  }
};
