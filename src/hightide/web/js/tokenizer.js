// Text to token ids and back, as Python does it: the vocabulary is tokenizer.json, the manifest has what that leaves out.
import { InputError } from "./errors.js";
import { Template } from "./vendor/jinja.mjs";
import { Tokenizer as Backend } from "./vendor/tokenizers.mjs";

/** @type {Map<string, number>} GPT-2's alphabet: the byte that each character stands for */
const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  BYTES.set(String.fromCodePoint(plain ? byte : next++), byte);
}

export class Tokenizer {
  /** @param {any} json tokenizer.json @param {Conventions} conventions */
  constructor(json, conventions) {
    this.conventions = conventions;
    this.backend = new Backend(json, {});
    this.control = new Set(conventions.control);
    this.literal = new Set(conventions.literal);
    this.json = json;
    /** @type {any} */
    this.plain = undefined; // to which the names of special tokens are text
  }

  /**
   * @param {string} text
   * @param {{special?: boolean, bos?: boolean}} options `special`: names of special tokens stand for them
   * @returns {number[]}
   */
  encode(text, { special = false, bos } = {}) {
    if (typeof text !== "string") throw new InputError("text to encode must be a string");
    const ids = (special ? this.backend : this.#plain()).encode(text, { add_special_tokens: false }).ids;
    const { add_bos, bos: first } = this.conventions;
    if (bos ?? (add_bos && ids[0] !== first)) {
      if (first === null) throw new InputError("this tokenizer has no BOS token");
      return [first, ...ids];
    }
    return ids;
  }

  #plain() {
    if (!this.plain) {
      const added = this.json.added_tokens.filter((token) => !token.special);
      this.plain = new Backend({ ...this.json, added_tokens: added }, {});
    }
    return this.plain;
  }

  /** @param {Message[]} messages */
  chat(messages) {
    const { template, bos, ends } = this.conventions;
    if (!template) throw new InputError("the model has no chat template: give it text");
    const name = (id) => (id == null ? "" : (this.backend.id_to_token(id) ?? ""));
    const given = { messages, add_generation_prompt: true, bos_token: name(bos), eos_token: name(ends[0]) };
    let text;
    try {
      text = new Template(template).render(given);
    } catch (error) {
      throw new InputError(`the chat template refused the messages: ${error.message}`);
    }
    const begun = name(bos) && text.startsWith(name(bos)); // a template that writes the BOS token needs no other
    return this.encode(text, { special: true, bos: begun ? false : undefined });
  }

  /** @param {number} id @returns {any} its bytes, which may be part of a character */
  piece(id) {
    const token = this.backend.id_to_token(id) ?? "";
    const text = () => new TextEncoder().encode(token);
    if (this.conventions.byte_level) {
      const bytes = [...token].map((character) => BYTES.get(character));
      return this.literal.has(id) || bytes.includes(undefined) ? text() : bytes;
    }
    if (this.control.has(id)) return text();
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? [parseInt(byte[1], 16)] : new TextEncoder().encode(token.replaceAll("▁", " "));
  }
}

/** Token ids to text as they come: whole characters only, and nothing of a stop string. */
export class TextStream {
  /** @param {Tokenizer} tokenizer @param {string[]} stops */
  constructor(tokenizer, stops) {
    this.tokenizer = tokenizer;
    this.stops = stops;
    this.stopped = false;
    this.starts = tokenizer.conventions.space_prefix;
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    this.held = ""; // may be the beginning of a stop string
  }

  /** @param {number} id */
  feed(id) {
    const control = this.tokenizer.control.has(id);
    const piece = control ? [] : [...this.tokenizer.piece(id)];
    if (this.starts && piece[0] === 32) piece.shift();
    this.starts &&= control;
    return this.#release(this.decoder.decode(Uint8Array.from(piece), { stream: true }));
  }

  /** What is still held back. */
  flush() {
    return this.#release(this.decoder.decode()) + this.held;
  }

  /** @param {string} more */
  #release(more) {
    if (this.stopped) return "";
    const text = this.held + more;
    const found = this.stops.map((stop) => [text.indexOf(stop), stop.length]).filter(([at]) => at >= 0);
    if (found.length) {
      const [[at]] = found.sort(([a, n], [b, m]) => a + n - b - m); // the one that is complete first
      this.stopped = true;
      this.held = "";
      return text.slice(0, at);
    }
    const cut = text.length - Math.max(0, ...this.stops.map((stop) => overlap(text, stop)));
    this.held = text.slice(cut);
    return text.slice(0, cut);
  }
}

/** @param {string} text @param {string} stop @returns how many characters at the end of the text begin it */
function overlap(text, stop) {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--) if (text.endsWith(stop.slice(0, n))) return n;
  return 0;
}

