// Any exported method: typed arrays in, typed arrays out.
import { DeviceLostError } from "./errors.js";

export class Program {
  /** @param {Runtime} runtime */
  constructor(runtime) {
    this.runtime = runtime;
  }

  /** What it takes. */
  get about() {
    return { inputs: this.runtime.session.data.inputs };
  }

  /**
   * Outputs for these inputs. After the GPU was lost a program without state goes on.
   * @param {TensorLike[]} given
   */
  async forward(given) {
    try {
      return await this.runtime.session.run(given);
    } catch (error) {
      if (!(error instanceof DeviceLostError)) throw error;
      await this.runtime.reopen();
      if (!this.runtime.session.data.state.length) return this.runtime.session.run(given);
      throw new DeviceLostError(`${error.message}, and with it the program's state: give its inputs from the start`);
    }
  }

  /** State (KV caches and other buffers) as at the start. */
  async reset() {
    await this.runtime.resetState();
  }
}
