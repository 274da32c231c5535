// What can go wrong, each with one sentence that says what to do.

/** Bad input: nothing was lost. */
export class InputError extends Error {
  name = "InputError";
}

/** The browser, its GPU or its storage cannot do what is asked. */
export class UnsupportedError extends Error {
  name = "UnsupportedError";
}

/** A file that is missing, cut short, or not what the manifest says. */
export class DownloadError extends Error {
  name = "DownloadError";
}

/** The GPU is gone: a driver was reset, or memory ran out. */
export class DeviceLostError extends Error {
  name = "DeviceLostError";
}

/** An error that came through a message port, as what it was. */
export function revived({ name, message }) {
  const Kind = { InputError, UnsupportedError, DownloadError, DeviceLostError }[name] ?? Error;
  return new Kind(message);
}
