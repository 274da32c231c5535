// Known answers: every kernel that a plan uses is run on a small problem before any weights are downloaded.
import { Session } from "./session.js";

const APART = 0.05; // the share of integers that may differ by one: codes halfway between two

/**
 * What is wrong with the answer of a check, or "".
 * @param {Pipelines} pipelines @param {number[][]} params @param {Check} check @param {ArrayBuffer} blobs
 */
export async function problemOf(pipelines, params, check, blobs) {
  const session = new Session(pipelines.gpu, pipelines, check.session, params);
  try {
    await session.allocate();
    for (const [buffer, at, bytes] of check.constants) session.write(buffer, 0, new Uint8Array(blobs, at, bytes));
    const inputs = check.inputs.map(([at, bytes]) => new Int32Array(blobs, at, bytes / 4));
    const level = await session.level(check.session.levels[0].dims);
    const outputs = await session.collect(session.launch(level, inputs, { want: check.outputs.map((_, n) => n) }));
    const problems = check.outputs.map(({ dtype, at: [at, bytes] }, n) => {
      if (check.session.outputs[n].held === "float16" && !("Float16Array" in globalThis)) return ""; // unreadable here
      const Kind = dtype === "float32" ? Float32Array : Int32Array;
      return difference(outputs[n].data, new Kind(blobs, at, bytes / 4), dtype, check.tolerance);
    });
    return problems.find(Boolean) ?? "";
  } catch (error) {
    pipelines.gpu.check();
    return String(error.message);
  } finally {
    session.close();
  }
}

/** @param {ArrayLike<number>} got @param {ArrayLike<number>} expected @param {string} dtype @param {number} tolerance */
function difference(got, expected, dtype, tolerance) {
  let [worst, range, wrong] = [0, 1e-3, 0];
  for (let n = 0; n < expected.length; n++) {
    if (!Number.isFinite(expected[n])) continue;
    if (!Number.isFinite(got[n])) return "a value is not finite";
    const apart = Math.abs(got[n] - expected[n]);
    worst = Math.max(worst, apart);
    range = Math.max(range, Math.abs(expected[n]));
    if (apart) wrong++;
  }
  if (dtype === "float32") {
    return worst / range > tolerance ? `an error of ${(worst / range).toExponential(1)} of the range` : "";
  }
  return worst > 1 || wrong > APART * expected.length ? `${wrong} of ${expected.length} integers differ` : "";
}
