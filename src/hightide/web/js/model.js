// A language model: one conversation, whose keys and values stay on the GPU.
import { DeviceLostError, InputError } from "./errors.js";
import { Random } from "./random.js";
import { TextStream, Tokenizer } from "./tokenizer.js";

const AHEAD = 4; // decode steps that are submitted before the first of them is read
const LOSSES = 3; // of the GPU without a new token in between: then it is no accident
const LONGEST = 3; // tokens of what a draft is looked up by

export class Model {
  /** @type {number[]} the tokens whose keys and values are on the GPU */
  #cached = [];
  #busy = false;
  /** @type {Answer | null} the last one */
  answer = null;

  /** @param {Runtime} runtime */
  constructor(runtime) {
    this.runtime = runtime;
    this.sizes = runtime.manifest.model;
    this.ends = new Set(this.sizes.ends);
    /** @type {Tokenizer | null} */
    this.tokenizer = null;
  }

  async prepare() {
    const conventions = this.runtime.manifest.tokenizer;
    if (conventions) this.tokenizer = new Tokenizer(await this.runtime.json(conventions.file), conventions);
  }

  get about() {
    return { context: this.sizes.context };
  }

  /** Forget the conversation. */
  async reset() {
    this.#cached = [];
  }

  /** @param {Prompt} prompt */
  encode(prompt) {
    const numbers = Array.isArray(prompt) && prompt.every((item) => Number.isInteger(item));
    const ids = numbers ? [.../** @type {number[]} */ (prompt)] : this.#encodeText(/** @type {any} */ (prompt));
    const { vocabulary, context } = this.sizes;
    const bad = ids.find((id) => id < 0 || id >= vocabulary);
    if (!ids.length) throw new InputError("the prompt is empty");
    if (bad !== undefined) throw new InputError(`token id ${bad} is outside the vocabulary of ${vocabulary}`);
    if (ids.length > context) throw new InputError(`the prompt has ${ids.length} tokens; the context holds ${context}`);
    return ids;
  }

  #encodeText(prompt) {
    if (!this.tokenizer) throw new InputError("the model has no tokenizer: give prompts as token ids");
    if (typeof prompt === "string") return this.tokenizer.encode(prompt);
    if (Array.isArray(prompt) && prompt.every((message) => typeof message?.role === "string")) {
      return this.tokenizer.chat(prompt);
    }
    throw new InputError("a prompt is text, token ids, or messages with a role and content");
  }

  /** @param {Prompt} prompt @param {GenerateOptions} options @returns {AsyncGenerator<Piece>} */
  async *generate(prompt, options) {
    if (this.#busy) throw new InputError("an answer is being made: wait for its end, or stop it");
    const answer = (this.answer = new Answer(this, this.encode(prompt), options));
    this.#busy = true;
    let losses = 0;
    try {
      while (!answer.ended()) {
        const { newTokens } = answer.stats;
        try {
          yield* this.#goOn(answer);
        } catch (error) {
          losses = answer.stats.newTokens > newTokens ? 1 : losses + 1;
          if (!(error instanceof DeviceLostError) || losses > LOSSES) throw error;
          this.#cached = [];
          await this.runtime.reopen();
        }
      }
      const rest = answer.text?.flush();
      if (rest) yield { text: rest, token: -1 };
    } finally {
      answer.finishReason ||= "stopped";
      this.#busy = false;
    }
  }

  /** @param {Answer} answer @returns {AsyncGenerator<Piece>} */
  async *#goOn(answer) {
    const { tokens } = answer;
    const other = this.#cached.findIndex((token, n) => token !== tokens[n]);
    this.#cached.length = Math.min(other < 0 ? this.#cached.length : other, tokens.length - 1);
    answer.start(this.#cached.length);
    const first = await this.#read(answer);
    if (first) yield* answer.take(await this.#collect(first));
    while (!answer.ended()) {
      yield* answer.options.speculate && this.sizes.draft ? this.#checkDraft(answer) : this.#decode(answer);
    }
  }

  // Read the tokens that have no keys and values yet. The step that chooses the next one is under way then.
  async #read(answer) {
    while (!answer.ended()) {
      const position = this.#cached.length;
      const tokens = answer.tokens.slice(position, position + this.sizes.chunk);
      const last = position + tokens.length === answer.tokens.length;
      const step = await this.#launch(tokens, position, last ? [answer.settings(answer.tokens.length)] : []);
      this.#cached.push(...tokens);
      if (last && answer.wants(answer.tokens.length + 1)) this.#level(1, 1).catch(() => {}); // compiled meanwhile
      if (last) return step;
      await this.#collect(step);
    }
    return null;
  }

  // One token after the other, each chosen on the GPU and fed to the next step there.
  /** @param {Answer} answer @returns {AsyncGenerator<Piece>} */
  async *#decode(answer) {
    /** @type {Ticket[]} */
    const underWay = [];
    let length = answer.tokens.length; // with those that are being chosen; the newest has no keys and values yet
    try {
      while (!answer.ended()) {
        while (underWay.length < AHEAD && answer.wants(length)) {
          const token = length === answer.tokens.length ? answer.tokens[length - 1] : -1;
          underWay.push(await this.#launch([token], length - 1, [answer.settings(length)]));
          length++;
        }
        const ids = await this.#collect(/** @type {Ticket} */ (underWay.shift()));
        this.#cached.push(answer.tokens[answer.tokens.length - 1]);
        yield* answer.take(ids);
      }
    } finally {
      // What was submitted in vain ends by itself: it has written behind the tokens that are kept.
      for (const step of underWay) this.#collect(step).catch(() => {});
    }
  }

  // Tokens that are guessed to come next, by what followed the newest ones before, are read in one step.
  /** @param {Answer} answer @returns {AsyncGenerator<Piece>} */
  async *#checkDraft(answer) {
    const { length } = answer.tokens;
    const room = Math.min(this.sizes.draft, this.sizes.context - length, answer.prompt + answer.limit - length - 1);
    const tokens = [answer.tokens[length - 1], ...findDraft(answer.tokens, room)];
    const settings = tokens.map((_, n) => answer.settings(length + n));
    const ids = await this.#collect(await this.#launch(tokens, length - 1, settings));
    const wrong = ids.findIndex((id, n) => id !== tokens[n + 1]); // the last is: nothing was guessed behind it
    this.#cached.push(...tokens.slice(0, wrong + 1));
    yield* answer.take(ids.slice(0, wrong + 1));
  }

  // ---- one step

  // A token of -1 is the id that the step before chose; `settings` say how the ids of the last rows are chosen.
  /** @param {number[]} tokens @param {number} position @param {number[][]} settings */
  async #launch(tokens, position, settings) {
    const { page, table, tile } = this.sizes;
    const [rows, wanted] = [tokens.length, settings.length];
    const places = Int32Array.from(tokens, (_, n) => position + n);
    const pages = Math.ceil((position + rows) / page);
    /** @type {number[]} */
    const tiles = [];
    if (rows > 1) for (let at = 0; at < rows; at += tile) tiles.push(at, Math.min(tile, rows - at), position + at, 0);
    const given = {
      tokens: Int32Array.from(tokens),
      positions: places,
      places,
      wanted: Int32Array.from(settings, (_, n) => rows - wanted + n),
      settings: Float32Array.from(settings.flat()),
      masked: new Int32Array(wanted).fill(-1),
      singles: Int32Array.from(rows === 1 ? [0, 1, position, 0] : []),
      tiles: Int32Array.from(tiles),
      pages: Int32Array.from({ length: table }, (_, n) => (n < pages ? n : 0)),
      longest: Int32Array.of(position + rows),
    };
    const { session } = this.runtime;
    const inputs = session.data.inputs.map(({ name }) => given[name] ?? null);
    if (this.answer) this.answer.stats.steps++;
    return session.launch(await this.#level(rows, wanted), inputs, wanted ? { want: [1], feed: [[1, 1]] } : {});
  }

  #level(rows, wanted) {
    const { session } = this.runtime;
    const { inputs, levels } = session.data;
    const [tokens, ids] = ["tokens", "wanted"].map((name) => inputs.findIndex((input) => input.name === name));
    const level = levels.find(({ dims }) => dims[tokens][1] === rows && dims[ids][0] === wanted);
    return session.level(/** @type {LevelData} */ (level).dims);
  }

  /** @param {Ticket} ticket @returns {Promise<number[]>} the ids that a step chose */
  async #collect(ticket) {
    const outputs = await this.runtime.session.collect(ticket);
    return outputs.flatMap(({ data }) => [...data]);
  }
}

/** One answer being made. */
class Answer {
  finishReason = "";
  /** @type {number[]} one for each token of the answer */
  #draws = [];
  #started = 0;
  #first = 0;
  stats = { promptTokens: 0, reusedTokens: 0, newTokens: 0, prefillSeconds: 0, decodeSeconds: 0, steps: 0 };

  /** @param {Model} model @param {number[]} tokens the prompt @param {GenerateOptions} options */
  constructor(model, tokens, options) {
    const { maxTokens, temperature = 0, topK = 0, topP = 1, minP = 0, seed = null, stop = [] } = options;
    const numbers = { maxTokens: maxTokens ?? 0, temperature, topK, topP, minP, seed: seed ?? 0 };
    for (const [name, value] of Object.entries(numbers)) {
      if (!(value >= 0)) throw new InputError(`${name} must be a number from 0 on, not ${value}`);
    }
    if (!Number.isInteger(numbers.seed)) throw new InputError(`seed must be an integer, not ${seed}`);
    const strings = Array.isArray(stop) && stop.every((one) => one && typeof one === "string");
    if (!strings) throw new InputError("stop must be a list of strings, none of them empty");
    if (stop.length && !model.tokenizer) throw new InputError("stop strings need a tokenizer");
    this.options = options;
    this.tokens = tokens;
    this.prompt = this.stats.promptTokens = tokens.length;
    this.context = model.sizes.context;
    this.limit = maxTokens ?? this.context;
    this.ends = options.ignoreEnd ? new Set() : model.ends;
    this.text = model.tokenizer && new TextStream(model.tokenizer, stop);
    this.how = [temperature, topK, topP, minP];
    this.random = new Random(seed);
    if (!this.limit) this.finishReason = "length";
  }

  /** @param {number} reused tokens whose keys and values were there */
  start(reused) {
    if (this.#started) return; // the GPU was lost
    this.#started = performance.now();
    this.stats.reusedTokens = reused;
  }

  /** @param {number} position how the token there is chosen: each has a draw of its own, however often it is chosen */
  settings(position) {
    if (!this.how[0]) return [...this.how, 0];
    while (this.#draws.length <= position - this.prompt) this.#draws.push(this.random.uniform());
    return [...this.how, this.#draws[position - this.prompt]];
  }

  /** @param {number} length whether the token behind so many is wanted, and there is room to read the last of these */
  wants(length) {
    return length - this.prompt < this.limit && length <= this.context;
  }

  /** Whether there is nothing more to do. */
  ended() {
    if (this.options.signal?.aborted) this.finishReason ||= "stopped";
    return Boolean(this.finishReason);
  }

  /** @param {number[]} ids the next tokens @returns {Generator<Piece>} */
  *take(ids) {
    const now = performance.now();
    if (!this.#first) this.stats.prefillSeconds = (now - this.#started) / 1000;
    this.#first ||= now;
    this.stats.decodeSeconds = (now - this.#first) / 1000;
    for (const token of ids) {
      if (this.ended()) return;
      if (token < 0) throw new Error("the model's logits are not numbers");
      this.tokens.push(token);
      if (this.ends.has(token)) {
        this.finishReason = "stop";
        return;
      }
      this.stats.newTokens++;
      const text = this.text?.feed(token) ?? "";
      if (this.text?.stopped) this.finishReason = "stop";
      else if (this.tokens.length - this.prompt >= this.limit) this.finishReason = "length";
      else if (this.tokens.length > this.context) this.finishReason = "context";
      yield { text, token };
    }
  }
}

// Prompt lookup: what followed the last occurrence of the newest n-gram, again and again up to `most` tokens.
/** @param {number[]} tokens @param {number} most */
function findDraft(tokens, most) {
  for (let n = Math.min(LONGEST, tokens.length - 1); n > 0 && most > 0; n--) {
    const tail = tokens.slice(-n);
    for (let start = tokens.length - n - 1; start >= 0; start--) {
      if (!tail.every((token, at) => tokens[start + at] === token)) continue;
      const followed = tokens.slice(start + n, start + n + most);
      return Array.from({ length: most }, (_, at) => followed[at % followed.length]);
    }
  }
  return [];
}
