// transformers.js: ONNX Runtime on its WebGPU provider, with a folder that engines/onnx_folder.py made of the GGUF file.

let dispatches = 0;

export async function open({ packages, folder }) {
  const library = `${packages}@huggingface/transformers/dist/transformers.min.js`;
  const { AutoModelForCausalLM, BaseStreamer, Tensor, env } = await import(library);
  // The "hub" is this host: nothing else is asked, and files are kept in the browser's cache as those of the hub are.
  Object.assign(env, { allowLocalModels: false, remoteHost: location.origin, remotePathTemplate: "{model}" });
  const runtime = `${location.origin}${packages}onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify`;
  env.backends.onnx.wasm.wasmPaths = { mjs: `${runtime}.mjs`, wasm: `${runtime}.wasm` };
  countDispatches();
  const model = await AutoModelForCausalLM.from_pretrained(folder, { device: "webgpu", dtype: "q4" });

  class Queue extends BaseStreamer {
    told = [];
    wake = () => {};
    put([ids]) {
      this.wake(this.told.push(Number(ids[0])));
    }
    end() {}
  }

  return {
    about: { device: "WebGPU", version: env.version, runtime: env.backends.onnx.versions.web },

    async *answer({ tokens }, count) {
      const streamer = new Queue();
      const size = [1, tokens.length];
      const input_ids = new Tensor("int64", BigInt64Array.from(tokens, BigInt), size);
      const attention_mask = new Tensor("int64", new BigInt64Array(tokens.length).fill(1n), size);
      const before = dispatches;
      const done = model.generate({ input_ids, attention_mask, max_new_tokens: count, do_sample: false, streamer });
      const failed = new Promise((_, reject) => done.catch(reject));
      failed.catch(() => {});
      for (let n = 0; n <= count; n++) {
        while (!streamer.told.length) await Promise.race([failed, new Promise((told) => (streamer.wake = told))]);
        const id = streamer.told.shift();
        if (n > 0) yield id; // the first is the prompt
      }
      await done;
      if (dispatches - before < count * model.config.num_hidden_layers) throw new Error("it did not run on WebGPU");
    },
  };
}

// ONNX Runtime runs in this thread, so what it sends to the GPU can be seen here.
function countDispatches() {
  const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
  GPUComputePassEncoder.prototype.dispatchWorkgroups = function (...groups) {
    dispatches++;
    return dispatchWorkgroups.apply(this, groups);
  };
}
