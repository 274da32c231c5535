// The types of `hightide.js`.

/** `data` is a typed array or a list; integers of 64 bits may be a BigInt64Array. */
export interface TensorLike {
  data: ArrayLike<number> | ArrayLike<bigint>;
  dims: number[];
}

/** An output; integers of 64 bits are an Int32Array. */
export interface Tensor {
  data: any;
  dims: number[];
}

/** `seconds`: left, as it looks now */
export interface Progress {
  stage: "checks" | "kernels" | "weights";
  done: number;
  total: number;
  seconds?: number;
}

export interface Choice {
  without?: string[]; // features that are not to be used
  variant?: string; // the name of the only plan to be tried
}

export interface LoadOptions extends Choice {
  onProgress?: Tell;
}

export interface Message {
  role: string;
  content: string;
}

export interface GenerateOptions {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  seed?: number | null;
  stop?: string[];
  ignoreEnd?: boolean; // go on behind tokens that end an answer
  speculate?: boolean; // check tokens that are guessed from the text so far; the answer is the same
  signal?: AbortSignal;
}

/** `token` is -1 for text that was held back until the end. */
export interface Piece {
  text: string;
  token: number;
}

export interface Stats {
  promptTokens: number;
  reusedTokens: number;
  newTokens: number;
  prefillSeconds: number;
  decodeSeconds: number;
  steps: number;
}

export interface Ending {
  finishReason: string; // "stop", "length", "context" or "stopped"
  stats: Stats;
}

export interface About {
  name: string;
  adapter: string;
  plan: string; // the kind of adapter that it was made for
  leftOut: string[]; // routes that answered wrong, and how
  notes: string[]; // what a person may want to know, such as a full disk
  downloaded: number; // bytes
  context?: number;
  inputs?: InputData[];
}

export interface InputData {
  name: string;
  dtype: string;
  held: string; // the type of an element on the GPU
  dims: number[];
  dynamic: boolean;
  place?: [number, number, number];
}

export type Tell = (progress: Progress) => void;

export type Prompt = string | number[] | Message[];

declare class Loaded {
  readonly about: About;
  /** Forget the conversation; the state of a program (KV caches and other buffers) is as at the start. */
  reset(): Promise<void>;
  close(): void;
}

export class WebModel extends Loaded {
  /** How the last answer ended. */
  readonly last: Ending | null;
  /** An answer to text, token ids or chat messages, piece by piece. Leaving the loop stops it. */
  generate(prompt: Prompt, options?: GenerateOptions): AsyncGenerator<Piece>;
  /** Token ids. */
  encode(prompt: Prompt): Promise<number[]>;
}

export class WebProgram extends Loaded {
  /** Outputs for inputs of any allowed live dims. */
  forward(...inputs: TensorLike[]): Promise<Tensor[]>;
}

/** A language model from a folder that `hightide web` made. */
export function load(folder: string | URL, options?: LoadOptions): Promise<WebModel>;
/** Any other program, from a folder that `hightide web --program` made. */
export function loadProgram(folder: string | URL, options?: LoadOptions): Promise<WebProgram>;

/** Bad input: nothing was lost. */
export class InputError extends Error {}
/** The browser, its GPU or its storage cannot do what is asked. */
export class UnsupportedError extends Error {}
/** A file that is missing, cut short, or not what the manifest says. */
export class DownloadError extends Error {}
/** The GPU is gone: a driver was reset, or memory ran out. */
export class DeviceLostError extends Error {}
