// shell.js - a terminal in a sandbox: a shell with a pty, its screen, and what is typed.
import { call, follow } from "./api.js";
import { el, outcome } from "./dom.js";
import { Screen, rowsKept } from "./screen.js";

const LIFE_NS = String(24 * 3600 * 1e9); // the longest that a command may run
const INPUT_MAX = 1024 * 1024; // characters that wait for the sandbox to read; more is not taken
const ROWS = [4, 200], COLUMNS = [20, 500];
const SHELL = ["sh", "-c", 'cd; if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi'];

const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", Insert: "\x1b[2~", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~",
  F1: "\x1bOP", F2: "\x1bOQ", F3: "\x1bOR", F4: "\x1bOS", F5: "\x1b[15~", F6: "\x1b[17~", F7: "\x1b[18~", F8: "\x1b[19~", F9: "\x1b[20~", F10: "\x1b[21~",
  F11: "\x1b[23~", F12: "\x1b[24~",
};
const MOVES = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

// What a key sends; null = it is the browser's, or text that the field will have.
export function keyOf(event, modes) {
  const { key, ctrlKey: ctrl, altKey: alt, shiftKey: shift, metaKey: meta } = event;
  if (meta || (ctrl && shift) || event.isComposing) return null;
  if (shift && ["Tab", "PageUp", "PageDown", "Insert"].includes(key)) return null; // the way out, and back through what has scrolled away
  if (MOVES[key]) {
    const modifiers = 1 + (shift ? 1 : 0) + (alt ? 2 : 0) + (ctrl ? 4 : 0);
    return modifiers > 1 ? `\x1b[1;${modifiers}${MOVES[key]}` : `\x1b${modes.arrows ? "O" : "["}${MOVES[key]}`;
  }
  if (KEYS[key]) return alt ? `\x1b${KEYS[key]}` : KEYS[key];
  if (key.length !== 1) return null;
  if (ctrl && !alt) {
    if (key === " ") return "\0";
    return /^[a-z@[\\\]^_]$/i.test(key) ? String.fromCharCode(key.toUpperCase().charCodeAt(0) & 31) : null;
  }
  return alt && !ctrl ? `\x1b${key}` : null;
}

// What was pasted is text: it cannot end the brackets, and a line ends as by the key.
export function pasteOf(text, modes) {
  const plain = text.replaceAll("\x1b", "").replace(/\r?\n/g, "\r");
  return modes.paste ? `\x1b[200~${plain}\x1b[201~` : plain;
}

function paint(node, style) {
  const [fore, back] = style.inverse ? [style.back ?? "back", style.fore ?? "fore"] : [style.fore, style.back];
  if (typeof fore === "string" && fore.startsWith("rgb")) node.style.color = fore;
  else if (fore !== undefined) node.classList.add(`fore-${fore}`);
  if (typeof back === "string" && back.startsWith("rgb")) node.style.backgroundColor = back;
  else if (back !== undefined) node.classList.add(`back-${back}`);
  for (const name of ["bold", "dim", "italic", "underline", "hidden", "strike"]) if (style[name]) node.classList.add(`is-${name}`);
}

const isBlank = ([text, style]) => text === " " && Object.keys(style).length === 0;

// Runs of one style, without the blanks at the end; the cell with the cursor is a run of its own.
function draw(node, line, cursor) {
  const runs = [];
  let n = line.cells.length;
  while (n > cursor + 1 && isBlank(line.cells[n - 1])) n--;
  line.cells.slice(0, n).forEach(([text, style], i) => {
    const last = runs.at(-1), here = i === cursor;
    if (last && last.style === style && !here && !last.here) last.text += text;
    else if (text !== "" || here) runs.push({ text, style, here });
  });
  node.replaceChildren(...runs.map((run) => {
    const span = el(run.here ? "span.cursor" : "span", {}, run.text || " ");
    paint(span, run.style);
    return span;
  }));
  line.changed = false;
}

const encode = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));

// {node, open(), leave()}: `open` begins a shell, once there is none; `fail` is told what went wrong.
export function shell(sandboxId, fail) {
  const before = el("div"), rows = el("div.rows"), end = el("p.end", { hidden: true });
  const keys = el("textarea", {
    "aria-label": "terminal", title: "Shift+Tab leaves the terminal", rows: 1, autocapitalize: "off", autocomplete: "off", autocorrect: "off", spellcheck: "false",
  });
  const glass = el("div.glass", {}, before, rows, end), probe = el("span.probe", {}, "M".repeat(20));
  const node = el("div.terminal", { hidden: true }, glass, keys, probe);
  const nodes = new WeakMap(); // of lines
  let screen = null, decoder = null, stop = null, execId = "", waits = "", isSending = false, frame = 0;

  async function send(text) {
    if (!execId || waits.length + text.length > INPUT_MAX) return;
    waits += text;
    if (isSending) return;
    isSending = true;
    try {
      while (waits && execId) {
        const data = encode(waits);
        waits = "";
        await call("ExecService/WriteStdin", { sandboxId, execId, data });
      }
    } catch (error) {
      waits = "";
      if (execId) fail(error);
    } finally {
      isSending = false;
    }
  }

  function nodeOf(line) {
    if (!nodes.has(line)) nodes.set(line, el("div"));
    return nodes.get(line);
  }

  function show() {
    frame = 0;
    const isAtEnd = glass.scrollTop + glass.clientHeight >= glass.scrollHeight - 4;
    for (const line of screen.takeLeft()) {
      draw(nodeOf(line), line, -1);
      before.append(nodeOf(line));
    }
    while (before.childElementCount > rowsKept) before.firstChild.remove();
    screen.lines.forEach((line, i) => {
      const isHere = i === screen.at.row;
      if (line.changed || isHere) draw(nodeOf(line), line, isHere && screen.modes.cursor && execId ? screen.at.column : -1);
      if (isHere) line.changed = true; // the cursor may leave it
    });
    rows.replaceChildren(...screen.lines.map(nodeOf));
    if (isAtEnd) glass.scrollTop = glass.scrollHeight;
  }

  function showSoon() {
    frame ||= requestAnimationFrame(show);
  }

  function size() {
    const box = probe.getBoundingClientRect(), within = (n, [least, most]) => Math.min(Math.max(Math.floor(n), least), most);
    return { rows: within((glass.clientHeight - 16) / (box.height || 18), ROWS), columns: within((glass.clientWidth - 20) / (box.width / 20 || 8), COLUMNS) };
  }

  const watch = new ResizeObserver(() => {
    if (!screen || !execId) return;
    const now = size();
    if (now.rows === screen.rows && now.columns === screen.columns) return;
    screen.resize(now.rows, now.columns);
    showSoon();
    call("ExecService/Resize", { sandboxId, execId, size: now }).catch(() => {}); // it may have ended
  });

  function over(text) {
    execId = waits = "";
    end.textContent = `${text}  `;
    end.append(el("button", { type: "button", onclick: open }, "New shell"));
    end.hidden = false;
    showSoon();
  }

  async function open() {
    if (execId) {
      keys.focus();
      return;
    }
    node.hidden = false;
    end.hidden = true;
    end.replaceChildren();
    before.replaceChildren();
    const now = size();
    screen = new Screen(now.rows, now.columns, send);
    decoder = new TextDecoder();
    try {
      const command = { argv: SHELL, pty: now, openStdin: true, timeoutNs: LIFE_NS, env: [{ name: "COLORTERM", value: "truecolor" }] };
      ({ execId } = await call("ExecService/Start", { sandboxId, command, killOnDisconnect: true }));
    } catch (error) {
      over(error.message);
      return;
    }
    showSoon();
    keys.focus();
    stop = new AbortController();
    let text = "The connection was cut off.";
    await follow("ExecService/Attach", { sandboxId, execId }, ({ output, ended }) => {
      if (ended) text = outcome(ended);
      if (!output) return;
      screen.feed(decoder.decode(Uint8Array.from(atob(output.data ?? ""), (c) => c.charCodeAt(0)), { stream: true }));
      showSoon();
    }, stop.signal).catch((error) => { text = error.message; });
    if (!stop.signal.aborted) over(text);
  }

  keys.addEventListener("keydown", (event) => {
    const isCopy = event.ctrlKey && event.key === "c" && String(getSelection());
    const isPaste = event.ctrlKey && event.key === "v";
    const text = isCopy || isPaste || !screen ? null : keyOf(event, screen.modes);
    if (text === null) return;
    event.preventDefault();
    glass.scrollTop = glass.scrollHeight;
    send(text);
  });
  keys.addEventListener("input", (event) => {
    if (event.isComposing) return;
    send(keys.value);
    keys.value = "";
  });
  keys.addEventListener("compositionend", () => {
    send(keys.value);
    keys.value = "";
  });
  keys.addEventListener("paste", (event) => {
    event.preventDefault();
    if (screen) send(pasteOf(event.clipboardData.getData("text/plain"), screen.modes));
  });
  glass.addEventListener("mouseup", () => String(getSelection()) || keys.focus()); // who marks text wants to copy it
  watch.observe(glass);

  return {
    node,
    open,
    leave() {
      stop?.abort(); // which ends the shell
      cancelAnimationFrame(frame);
      watch.disconnect();
      execId = "";
    },
  };
}
