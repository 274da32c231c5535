// The files of an export: fetched, verified by hash, and kept in the origin's private file system for the next visit.
import { DownloadError } from "./errors.js";

const TRIES = 4; // of a download that is cut
const PAUSE = 500; // ms before the first try after a cut; each waits twice as long
const FOLDER = "hightide";

export class Files {
  /** @type {string[]} what a person may want to know */
  notes = [];
  downloaded = 0; // bytes that came over the network
  /** @type {FileSystemDirectoryHandle | null | undefined} null: there is none */
  #folder;

  /** @param {string} base the folder's URL */
  constructor(base) {
    this.base = base;
  }

  async manifest() {
    const response = await this.#fetch("manifest.json", { cache: "no-cache" });
    const manifest = await response.json().catch(() => null);
    if (manifest?.format !== 1) throw new DownloadError(`${this.base} is not a folder made by \`hightide web\``);
    return manifest;
  }

  /** @param {string} file @param {{bytes: number, sha256: string}} info */
  bytes(file, info) {
    return this.#get({ file, ...info }, () => {});
  }

  /** @param {string} file which ends with .bin if it is compressed @param {{bytes: number, sha256: string}} info */
  async json(file, info) {
    const bytes = await this.bytes(file, info);
    if (!file.endsWith(".bin")) return JSON.parse(new TextDecoder().decode(bytes));
    return new Response(new Response(bytes).body?.pipeThrough(new DecompressionStream("gzip"))).json();
  }

  /** @param {FileInfo[]} shards of which it gives the bytes, in order @param {Tell} tell */
  async *shards(shards, tell) {
    const total = shards.reduce((sum, { bytes }) => sum + bytes, 0);
    const started = performance.now();
    let before = 0;
    const report = (got) => {
      const done = before + got;
      const seconds = ((total - done) * (performance.now() - started)) / 1000 / Math.max(1, done);
      tell({ stage: "weights", done, total, seconds });
    };
    for (const shard of shards) {
      yield await this.#get(shard, report);
      before += shard.bytes;
      report(0);
    }
  }

  // A file from the disk, or from the network and then on the disk. Tabs that want the same one wait for each other.
  /** @param {FileInfo} info @param {(got: number) => void} tell */
  async #get(info, tell) {
    const name = `${info.sha256}.bin`;
    const work = async () => {
      const kept = await this.#read(name);
      if (kept && (await matches(kept, info))) return kept;
      for (const cache of /** @type {RequestCache[]} */ (["default", "reload"])) {
        const bytes = await this.#download(info, cache, tell);
        const right = await matches(bytes, info);
        await this.#remove(`${name}.part`);
        if (right) {
          await this.#keep(name, bytes);
          return bytes;
        }
      }
      throw new DownloadError(`${info.file} is not what the manifest says: its hash differs. Export the model again`);
    };
    return navigator.locks ? navigator.locks.request(`hightide ${name}`, work) : work();
  }

  async #download({ file, bytes: size, sha256 }, cache, tell) {
    const part = `${sha256}.bin.part`;
    const bytes = new Uint8Array(size);
    const begun = cache === "default" ? await this.#read(part) : null;
    let got = begun && begun.byteLength < size ? begun.byteLength : 0;
    if (begun && got) bytes.set(new Uint8Array(begun));
    for (let tried = 1; got < size; tried++) {
      try {
        const response = await this.#fetch(file, { cache, headers: got ? { Range: `bytes=${got}-` } : {} });
        if (response.status !== 206) got = 0; // a server that knows no ranges
        for await (const more of pieces(response)) {
          if (got + more.length > size) throw new DownloadError(`${file} is longer than the manifest says`);
          bytes.set(more, got);
          got += more.length;
          this.downloaded += more.length;
          tell(got);
          tried = 1;
        }
        if (got < size) throw new DownloadError(`${file} was cut at ${got} of ${size} bytes. Reload to go on`);
      } catch (error) {
        if (tried >= TRIES || error.permanent) {
          if (got) await this.#keep(part, bytes.slice(0, got).buffer);
          throw error;
        }
        await new Promise((resolve) => setTimeout(resolve, PAUSE * 2 ** tried));
      }
    }
    return bytes.buffer;
  }

  async #fetch(file, options) {
    let response;
    try {
      response = await fetch(new URL(file, this.base), options);
    } catch {
      const why = "the network is down, or the server is gone";
      throw new DownloadError(`${file} could not be fetched: ${why}. Reload to go on`);
    }
    if (response.ok) return response;
    const error = new DownloadError(`${file} could not be fetched: the server said ${response.status}`);
    throw Object.assign(error, { permanent: response.status < 500 });
  }

  /** @param {string} what whether it was noted at an earlier visit */
  async noted(what) {
    return (await this.#read(await nameOf(what))) !== null;
  }

  /** @param {string} what */
  async note(what) {
    await this.#keep(await nameOf(what), new ArrayBuffer(0));
  }

  // ---- the disk

  async #directory() {
    if (this.#folder === undefined) {
      try {
        const root = await navigator.storage.getDirectory();
        this.#folder = await root.getDirectoryHandle(FOLDER, { create: true });
      } catch {
        this.#doWithout("the browser allows no storage here");
      }
    }
    return this.#folder;
  }

  #doWithout(why) {
    this.#folder = null;
    this.notes.push(`${why}: the model is in memory only, and the next visit downloads it again`);
  }

  async #read(name) {
    try {
      const handle = await (await this.#directory())?.getFileHandle(name);
      return (await (await handle?.getFile())?.arrayBuffer()) ?? null;
    } catch {
      return null; // it is not there
    }
  }

  async #keep(name, bytes) {
    const folder = await this.#directory();
    if (!folder) return;
    try {
      const stream = await (await folder.getFileHandle(name, { create: true })).createWritable();
      await stream.write(bytes);
      await stream.close();
    } catch (error) {
      await this.#remove(name);
      const full = error.name === "QuotaExceededError";
      this.#doWithout(full ? "the disk is full, or the browser allows no more of it" : "the browser's storage fails");
    }
  }

  async #remove(name) {
    await (await this.#directory())?.removeEntry(name).catch(() => {});
  }
}

/** @param {Response} response */
async function* pieces(response) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
}

/** @param {ArrayBuffer} bytes @param {{sha256: string, bytes: number}} info */
async function matches(bytes, info) {
  return bytes.byteLength === info.bytes && (await hashOf(bytes)) === info.sha256;
}

async function nameOf(what) {
  return `${await hashOf(new TextEncoder().encode(what))}.note`;
}

async function hashOf(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
