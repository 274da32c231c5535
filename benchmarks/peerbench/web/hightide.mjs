// hightide: a folder that `hightide web` made, imported as any page does.

export async function open({ folder }) {
  const { load } = await import(`${folder}hightide.js`);
  const model = await load(folder);
  await model.engine.call("timeLaunches", {}).result; // see browser.py
  const { plan, leftOut } = model.about;
  return {
    about: { device: "WebGPU", plan, leftOut },

    async *answer({ tokens }, count) {
      await model.reset();
      for await (const { token } of model.generate(tokens, { maxTokens: count, ignoreEnd: true })) {
        if (token >= 0) yield token;
      }
    },

    // Milliseconds of JavaScript for each step since the last call.
    host: () => model.engine.call("launches", {}).result,
  };
}
