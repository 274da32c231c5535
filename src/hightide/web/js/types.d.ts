// The types of the engine, for editors and `tsc`; nothing imports this file when it runs.
import type { Gpu, Pipelines } from "./device.js";

/** 3, or ["+", a, b, ...], ["*", a, b], ["//", a, b], ["in", input, flat index] */
export type Formula = number | [string, ...any[]];
export type ReadElement = (input: number, flat: number) => number;

/** A whole buffer, or [buffer, offset, bytes]. */
export type Place = number | [number, number, number];

export interface Kernel {
  name: string;
  text: string;
  reads: number;
  writes: number;
  live: boolean; // it reads SymInts
}

export interface InputData {
  name: string;
  dtype: string;
  held: string; // the type of an element on the GPU
  dims: number[];
  dynamic: boolean;
  place?: [number, number, number];
}

export interface OutputData {
  dtype: string;
  held: string;
  place?: Place;
  symint?: number;
}

export interface LevelData {
  dims: number[][];
  course: number;
  slots: [number, Formula][]; // (parameter block, workgroups)
  outputs: number[][];
  symints: Formula[];
  bounds: [Formula, number, number, string][];
  indices: [number, number, number, string][];
}

export interface SessionData {
  inputs: InputData[];
  outputs: OutputData[];
  buffers: number[];
  symints: { place: [number, number, number]; count: number };
  state: number[];
  groups: [string, ...Place[]][];
  courses: { groups: number[]; slots: number[] }[];
  levels: LevelData[];
}

export interface Needs {
  features: string[];
  lanes: number;
  software: boolean;
}

export interface Variant {
  name: string;
  needs: Needs;
  session: SessionData;
  constants: number[][]; // [buffer, offset in the weights, bytes]
  checks: number[];
}

export interface Check {
  op: string;
  routes: string;
  session: SessionData;
  constants: number[][];
  inputs: number[][];
  outputs: { dtype: string; at: number[] }[];
  state: { buffer: number; held: string; dtype: string; at: number[] }[];
  tolerance: number;
}

export interface Command {
  pipeline: GPUComputePipeline;
  group: GPUBindGroup;
  offset: number;
  x: number;
  y: number;
  grid: Formula;
}

export interface Level {
  data: LevelData;
  commands: Command[];
  live: Command[]; // those whose grids follow a formula
}

export interface Ticket {
  buffer: GPUBuffer;
  parts: [output: number, offset: number, bytes: number][];
  level: Level;
  symints: number[];
}

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

export interface FileInfo {
  file: string;
  bytes: number;
  sha256: string;
}

/** `seconds`: left, as it looks now */
export interface Progress {
  stage: "checks" | "kernels" | "weights";
  done: number;
  total: number;
  seconds?: number;
}
export type Tell = (progress: Progress) => void;

export interface Choice {
  without?: string[]; // features that are not to be used
  variant?: string; // the name of the only plan to be tried
}

export interface LoadOptions extends Choice {
  onProgress?: Tell;
}

export interface Conventions {
  file: string;
  byte_level: boolean;
  control: number[];
  literal: number[];
  bos: number | null;
  ends: number[];
  add_bos: boolean;
  space_prefix: boolean;
  template: string | null;
}

export interface Message {
  role: string;
  content: string;
}

export type Prompt = string | number[] | Message[];

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

export type { Gpu, Pipelines };
