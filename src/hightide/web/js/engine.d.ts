// The types within the engine, known to all its files; those of its callers are in hightide.d.ts.
type Gpu = import("./device.js").Gpu;
type Pipelines = import("./device.js").Pipelines;
type Runtime = import("./runtime.js").Runtime;
type Files = import("./files.js").Files;
type TensorLike = import("./hightide.js").TensorLike;
type Tensor = import("./hightide.js").Tensor;
type Progress = import("./hightide.js").Progress;
type Choice = import("./hightide.js").Choice;
type LoadOptions = import("./hightide.js").LoadOptions;
type Message = import("./hightide.js").Message;
type GenerateOptions = import("./hightide.js").GenerateOptions;
type Piece = import("./hightide.js").Piece;
type Stats = import("./hightide.js").Stats;
type Ending = import("./hightide.js").Ending;
type About = import("./hightide.js").About;
type InputData = import("./hightide.js").InputData;
type Tell = import("./hightide.js").Tell;
type Prompt = import("./hightide.js").Prompt;

/** 3, or ["+", a, b, ...], ["*", a, b], ["//", a, b], ["in", input, flat index] */
type Formula = number | [string, ...any[]];
type ReadElement = (input: number, flat: number) => number;

/** A whole buffer, or [buffer, offset, bytes]. */
type Place = number | [number, number, number];

interface Kernel {
  name: string;
  text: string;
  reads: number;
  writes: number;
  live: boolean; // it reads SymInts
}

interface OutputData {
  dtype: string;
  held: string;
  place?: Place;
  symint?: number;
}

interface LevelData {
  dims: number[][];
  course: number;
  slots: [number, Formula][]; // (parameter block, workgroups)
  outputs: number[][];
  symints: Formula[];
  bounds: [Formula, number, number, string][];
  indices: [number, number, number, string][];
}

interface SessionData {
  inputs: InputData[];
  outputs: OutputData[];
  buffers: number[];
  symints: { place: [number, number, number]; count: number };
  state: number[];
  groups: [string, ...Place[]][];
  courses: { groups: number[]; slots: number[] }[];
  levels: LevelData[];
}

interface Needs {
  features: string[];
  lanes: number;
  software: boolean;
}

interface Variant {
  name: string;
  needs: Needs;
  session: SessionData;
  constants: number[][]; // [buffer, offset in the weights, bytes]
  checks: number[];
}

interface Check {
  op: string;
  routes: string;
  session: SessionData;
  constants: number[][];
  inputs: number[][];
  outputs: { dtype: string; at: number[] }[]; // and the state behind them
  tolerance: number;
}

interface Command {
  pipeline: GPUComputePipeline;
  group: GPUBindGroup;
  offset: number;
  x: number;
  y: number;
  grid: Formula;
}

interface Level {
  data: LevelData;
  commands: Command[];
  live: Command[]; // those whose grids follow a formula
}

interface Ticket {
  buffer: GPUBuffer;
  parts: [output: number, offset: number, bytes: number][];
  level: Level;
  symints: number[];
}

interface FileInfo {
  file: string;
  bytes: number;
  sha256: string;
}

interface Conventions {
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

