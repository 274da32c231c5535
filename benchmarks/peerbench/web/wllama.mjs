// wllama: llama.cpp compiled to WebAssembly, on its WebGPU backend (`layers` > 0) or on the CPU. It reads the GGUF file
// itself. A prompt is text: it takes no token ids.

const DEBUG = 1;

export async function open({ packages, model, layers, context }) {
  const home = `${packages}@wllama/wllama/esm/`;
  const { Wllama } = await import(`${home}index.js`);
  const said = [];
  const keep = (...words) => said.push(words.join(" "));
  const logger = { debug: keep, log: keep, warn: keep, error: keep };
  const wllama = new Wllama({ default: `${home}wasm/wllama.wasm` }, { logger });
  // Threads as it chooses them, half of the cores: with all of them it waits for itself on a busy machine.
  const options = { n_ctx: context, n_gpu_layers: layers, log_level: DEBUG };
  await wllama.loadModelFromUrl(`${location.origin}${model}`, options);
  const places = said.map((line) => line.match(/assigned to device (\w+)/)?.[1]).filter(Boolean);
  const onGpu = places.length > 0 && places.every((place) => place !== "CPU");
  return {
    about: { device: onGpu ? "WebGPU" : "CPU", version: Wllama.getLibllamaVersion(), threads: wllama.getNumThreads() },

    async *answer({ tokens, text }, count) {
      const greedy = { temperature: 0, top_k: 1, ignore_eos: true, cache_prompt: false };
      const told = { stream: true, return_tokens: true, verbose: true }; // else chunks have no ids
      const chunks = await wllama.createCompletion({ prompt: text, max_tokens: count, ...greedy, ...told });
      for await (const { __verbose: chunk } of chunks) {
        if (!chunk.tokens_evaluated || chunk.stop) continue;
        if (chunk.tokens_evaluated !== tokens.length) throw new Error(`it read ${chunk.tokens_evaluated} tokens`);
        yield* chunk.tokens;
      }
    },
  };
}
