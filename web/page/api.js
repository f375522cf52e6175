// api.js - calls of Cloche's services: JSON there and back, and streams of lines.
//
// The key is kept for this tab alone, and leaves it in no way but as a header of these calls.

const KEY = "cloche-key";
const PIECE = 48 * 1024;

export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code; // "not_found", "resource_exhausted", ...
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  drop: () => sessionStorage.removeItem(KEY),
  // Of an address that `cloche dashboard` printed: "#key=clk_...".  Not left in the history.
  fromAddress() {
    const found = /^#key=(.+)$/.exec(location.hash);
    if (!found) return;
    this.set(decodeURIComponent(found[1]));
    history.replaceState(null, "", location.pathname);
  },
};

// message: an object, or text that is ready
async function post(method, message, signal) {
  let answer;
  try {
    answer = await fetch(`/cloche.v1.${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${key.get()}` },
      body: typeof message === "string" ? message : JSON.stringify(message),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("unavailable", "The gateway does not answer.");
  }
  if (answer.ok) return answer;
  const error = await answer.json().catch(() => ({}));
  throw new ApiError(error.code ?? "unknown", error.message || `HTTP ${answer.status}`);
}

// What the gateway says of itself.
export const config = fetch("/dashboard/config.json").then((answer) => (answer.ok ? answer.json() : {})).catch(() => ({}));

// One answer.
export async function call(method, message = {}) {
  return (await post(method, message)).json();
}

const PAGE = 200; // entries that are asked for at once

// Show in a table (dom.js) what a method lists: as many as it wants, in whole pages.  The entries, each as `shape`
// makes it; `field`: of the answer.
export async function fill(list, method, field, message = {}, shape = (entry) => entry) {
  const entries = [];
  let pageToken = "";
  do {
    const answer = await call(method, { ...message, pageSize: PAGE, pageToken });
    entries.push(...(answer[field] ?? []).map(shape));
    pageToken = answer.nextPageToken ?? "";
  } while (pageToken && entries.length < list.wanted);
  list.update(entries, pageToken !== "");
  return entries;
}

// A file of a browser as the messages of FileService.Write: pieces, the last one commits.
export async function upload(sandboxId, path, file) {
  const lines = [];
  for (let at = 0; at === 0 || at < file.size; at += PIECE) {
    const bytes = new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer());
    const data = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    lines.push(JSON.stringify(at === 0 ? { sandboxId, path, data } : { data }));
  }
  await post("FileService/Write", [...lines, '{"commit":true}'].join("\n"));
}

// A stream of answers: each is given to `take`.  Returns at its end, throws when it breaks.
export async function follow(method, message, take, signal) {
  const answer = await post(method, message, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const { result, error } = JSON.parse(line);
      if (error) throw new ApiError(error.code, error.message);
      take(result);
    }
  }
}
