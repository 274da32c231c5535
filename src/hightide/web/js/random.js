// The random numbers of NumPy's default_rng(seed).uniform(): SeedSequence, then PCG64. The same seed gives the same text
// here and in Python.

const MASK128 = (1n << 128n) - 1n;
const MASK64 = (1n << 64n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** @param {bigint} seed @returns SeedSequence(seed).generate_state(4, uint64) */
function seedState(seed) {
  let constant = 0x43b0d7e5;
  const folded = (value) => (value ^ (value >>> 16)) >>> 0;
  const hashed = (value, by = 0x931e8875) => {
    const mixed = value ^ constant;
    constant = Math.imul(constant, by);
    return folded(Math.imul(mixed, constant) >>> 0);
  };
  const mixed = (x, y) => folded((Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715)) >>> 0);
  const entropy = [];
  for (let rest = seed; rest > 0n; rest >>= 32n) entropy.push(Number(rest & 0xffffffffn));
  const pool = [0, 1, 2, 3].map((n) => hashed(entropy[n] ?? 0));
  for (let from = 0; from < 4; from++) {
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = mixed(pool[to], hashed(pool[from]));
  }
  for (const word of entropy.slice(4)) {
    for (let to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(word));
  }
  constant = 0x8b51f9dd;
  const words = [...pool, ...pool].map((word) => BigInt(hashed(word, 0x58f38ded)));
  return [0, 2, 4, 6].map((n) => words[n] | (words[n + 1] << 32n));
}

export class Random {
  /** @param {number | bigint | null} seed None: a seed of its own. */
  constructor(seed) {
    const entropy = seed ?? crypto.getRandomValues(new BigUint64Array(1))[0];
    const [high, low, incHigh, incLow] = seedState(BigInt(entropy));
    this.increment = ((((incHigh << 64n) | incLow) << 1n) | 1n) & MASK128;
    this.state = 0n;
    this.step();
    this.state = (this.state + ((high << 64n) | low)) & MASK128;
    this.step();
  }

  step() {
    this.state = (this.state * MULTIPLIER + this.increment) & MASK128;
  }

  /** From 0 to below 1. */
  uniform() {
    this.step();
    const folded = ((this.state >> 64n) ^ this.state) & MASK64;
    const turn = this.state >> 122n;
    const turned = ((folded >> turn) | (folded << ((64n - turn) & 63n))) & MASK64;
    return Number(turned >> 11n) / 2 ** 53;
  }
}
