// screen.js - what a terminal shows: the sequences of xterm that programs use, onto rows of cells.  Pure.
//
// What comes is a sandbox's: it is put onto the screen, or ignored.  It is answered two questions, in fixed forms: where the cursor
// is, and what kind of terminal this is.  There is no title, clipboard, link or answerback for it to set.  (ECMA-48; XTerm Control Sequences)

const KEPT = 2000; // rows that have left the screen at the top
const SEQUENCE_MAX = 128; // characters of one control sequence; a longer one is ignored
const MARKS_MAX = 8; // characters of one cell, with what combines
const GRAPHICS = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"; // DEC special graphics, from "`" on
const PLAIN = Object.freeze({});

const clamp = (n, least, most) => Math.min(Math.max(n, least), most);

// Columns of a character: wide ones of East Asia and pictures take two, what combines none.
function columnsOf(c) {
  if (c < 0x300) return c === 0xad ? 0 : 1;
  if ((c >= 0x300 && c < 0x370) || (c >= 0x200b && c <= 0x200f) || (c >= 0x20d0 && c < 0x2100) || (c >= 0xfe00 && c < 0xfe10) ||
      (c >= 0xfe20 && c < 0xfe30) || c === 0xfeff || (c >= 0xe0100 && c < 0xe01f0)) return 0;
  return (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0 && c !== 0x303f) || (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
    (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) || (c >= 0xffe0 && c < 0xffe7) || (c >= 0x1f300 && c < 0x1f650) ||
    (c >= 0x1f680 && c < 0x1f700) || (c >= 0x1f900 && c < 0x1fb00) || (c >= 0x20000 && c < 0x3fffe) ? 2 : 1;
}

// A color by its number, of 256; the first 16 are the page's.
function colorOf(n) {
  if (n < 16) return n;
  if (n >= 232) return `rgb(${Array(3).fill(8 + (n - 232) * 10).join(" ")})`;
  const level = (v) => (v ? 55 + v * 40 : 0);
  return `rgb(${level(Math.floor((n - 16) / 36))} ${level(Math.floor((n - 16) / 6) % 6)} ${level((n - 16) % 6)})`;
}

export class Screen {
  // answer(text): what a program asked for, to its input.
  constructor(rows, columns, answer = () => {}) {
    this.answer = answer;
    this.rows = rows;
    this.columns = columns;
    this.reset();
  }

  reset() {
    this.left = []; // rows that left the screen at the top since takeLeft()
    this.style = PLAIN;
    this.at = { row: 0, column: 0 };
    this.saved = null;
    this.isFull = false; // the last column is written: the next character begins a row
    this.modes = { wrap: true, insert: false, origin: false, cursor: true, arrows: false, paste: false };
    this.charsets = [false, false]; // G0, G1: special graphics?
    this.shift = 0;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.lines = Array.from({ length: this.rows }, () => this.blank());
    this.main = null; // the lines of the usual screen, while the other one is shown
    this.state = "plain";
    this.sequence = "";
    this.last = "";
  }

  // A row: cells [text, style]; the second half of a wide character is "".
  blank(style = this.background()) {
    return { cells: Array.from({ length: this.columns }, () => [" ", style]), changed: true };
  }

  background() {
    return this.style.back === undefined ? PLAIN : { back: this.style.back };
  }

  // Rows that have left the screen, oldest first.
  takeLeft() {
    return this.left.splice(0);
  }

  text() {
    return this.lines.map((line) => line.cells.map(([c]) => c).join("").trimEnd()).join("\n").trimEnd();
  }

  feed(text) {
    for (const c of text) this[this.state](c);
  }

  // --- what comes, character by character: a method a state ---------------------------------------

  string(c) { // of no use to us, up to its end
    if (c === "\x07" || c === "\x18" || c === "\x1a") this.state = "plain";
    else if (c === "\x1b") this.state = "escape";
  }

  plain(c) {
    const code = c.codePointAt(0);
    if (code < 0x20 || code === 0x7f) this.control(c);
    else if (code < 0x80 || code >= 0xa0) this.put(c, code);
  }

  control(c) {
    switch (c) {
      case "\b":
        this.at.column = Math.max(this.at.column - 1, 0);
        this.isFull = false;
        break;
      case "\t":
        this.at.column = Math.min((Math.floor(this.at.column / 8) + 1) * 8, this.columns - 1);
        break;
      case "\n": case "\v": case "\f": this.feedLine(); break;
      case "\r":
        this.at.column = 0;
        this.isFull = false;
        break;
      case "\x0e": this.shift = 1; break;
      case "\x0f": this.shift = 0; break;
      case "\x18": case "\x1a": this.state = "plain"; break;
      case "\x1b": this.state = "escape"; break;
      default:
    }
  }

  escape(c) {
    this.state = "plain";
    switch (c) {
      case "[":
        this.state = "csi";
        this.sequence = "";
        break;
      case "]": case "P": case "X": case "^": case "_": this.state = "string"; break;
      case "(": this.state = "charset0"; break;
      case ")": this.state = "charset1"; break;
      case "*": case "+": case "#": case "%": case " ": this.state = "skip"; break;
      case "7": this.save(); break;
      case "8": this.restore(); break;
      case "D": this.feedLine(); break;
      case "E": this.control("\r"); this.feedLine(); break;
      case "M": this.feedBack(); break;
      case "c": this.reset(); break;
      case "\x1b": this.state = "escape"; break;
      default:
    }
  }

  skip() { this.state = "plain"; }
  charset0(c) { this.charsets[0] = c === "0"; this.state = "plain"; }
  charset1(c) { this.charsets[1] = c === "0"; this.state = "plain"; }

  csi(c) {
    const code = c.codePointAt(0);
    if (code < 0x20) this.control(c);
    else if (code < 0x40 && this.sequence.length <= SEQUENCE_MAX) this.sequence += c;
    else if (code >= 0x40) {
      this.state = "plain";
      if (code < 0x7f && this.sequence.length <= SEQUENCE_MAX) this.obey(c);
    }
  }

  obey(end) {
    const [, kind, numbers, between] = /^([<=>?]?)([0-9:;]*)([ -/]*)$/.exec(this.sequence) ?? [];
    if (kind === undefined) return;
    const list = numbers.split(";").map((n) => n.split(":").map((part) => clamp(Number(part), 0, 65535)));
    const n = Math.max(list[0][0], 1), second = Math.max(list[1]?.[0] ?? 0, 1);
    if (between === "!" && end === "p") this.softReset();
    if (between) return;
    if (kind === "?" && (end === "h" || end === "l")) list.forEach(([mode]) => this.setPrivate(mode, end === "h"));
    if (kind === ">" && end === "c") this.answer("\x1b[>0;0;0c");
    if (kind) return;
    const { at } = this;
    switch (end) {
      case "@": this.shiftCells(at.column, n); break;
      case "A": this.go(Math.max(at.row - n, at.row >= this.top ? this.top : 0), at.column); break;
      case "B": case "e": this.go(Math.min(at.row + n, at.row <= this.bottom ? this.bottom : this.rows - 1), at.column); break;
      case "C": case "a": this.go(at.row, at.column + n); break;
      case "D": this.go(at.row, at.column - n); break;
      case "E": this.go(Math.min(at.row + n, this.bottom), 0); break;
      case "F": this.go(Math.max(at.row - n, this.top), 0); break;
      case "G": case "`": this.go(at.row, n - 1); break;
      case "H": case "f": this.goFromOrigin(n - 1, second - 1); break;
      case "I": for (let i = 0; i < Math.min(n, this.columns); i++) this.control("\t"); break;
      case "J": this.eraseScreen(list[0][0]); break;
      case "K": this.eraseLine(list[0][0]); break;
      case "L": this.moveLines(at.row, n); break;
      case "M": this.moveLines(at.row, -n); break;
      case "P": this.shiftCells(at.column, -n); break;
      case "S": this.scroll(n); break;
      case "T": this.scroll(-n); break;
      case "X": this.erase(at.row, at.column, at.column + n); break;
      case "Z": this.go(at.row, Math.max(Math.ceil(at.column / 8) - n, 0) * 8); break;
      case "b": if (this.last) this.feed(this.last.repeat(Math.min(n, this.columns * this.rows))); break;
      case "c": this.answer("\x1b[?1;2c"); break;
      case "d": this.goFromOrigin(n - 1, at.column); break;
      case "h": case "l": if (list[0][0] === 4) this.modes.insert = end === "h"; break;
      case "m": this.setStyle(list); break;
      case "n":
        if (list[0][0] === 5) this.answer("\x1b[0n");
        if (list[0][0] === 6) this.answer(`\x1b[${at.row + 1 - (this.modes.origin ? this.top : 0)};${at.column + 1}R`);
        break;
      case "r": this.setMargins(n, list[1]?.[0] || this.rows); break;
      case "s": this.save(); break;
      case "u": this.restore(); break;
      default:
    }
  }

  setPrivate(mode, on) {
    const names = { 1: "arrows", 6: "origin", 7: "wrap", 25: "cursor", 2004: "paste" };
    if (names[mode]) this.modes[names[mode]] = on;
    if (mode === 6) this.goFromOrigin(0, 0);
    if (mode === 25) this.line().changed = true;
    if (mode === 1049 && on) this.save();
    if (mode === 47 || mode === 1047 || mode === 1049) this.showOther(on);
    if (mode === 1049 && !on) this.restore();
  }

  showOther(on) {
    if (on === Boolean(this.main)) return;
    if (on) {
      this.main = this.lines;
      this.lines = Array.from({ length: this.rows }, () => this.blank());
    } else {
      this.lines = this.main;
      this.main = null;
      this.lines.forEach((line) => { line.changed = true; });
    }
  }

  softReset() {
    this.style = PLAIN;
    this.modes = { ...this.modes, wrap: true, insert: false, origin: false, cursor: true, arrows: false };
    this.top = 0;
    this.bottom = this.rows - 1;
    this.charsets = [false, false];
    this.shift = 0;
  }

  setStyle(list) {
    let style = { ...this.style };
    const flags = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 8: "hidden", 9: "strike" };
    const off = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 28: ["hidden"], 29: ["strike"], 39: ["fore"], 49: ["back"] };
    for (let i = 0; i < list.length; i++) {
      const [n, ...parts] = list[i];
      if (n === 0) style = {};
      else if (n === 4 && parts[0] === 0) delete style.underline;
      else if (flags[n]) style[flags[n]] = true;
      else if (off[n]) off[n].forEach((name) => delete style[name]);
      else if (n === 38 || n === 48) {
        const more = parts.length ? parts : list.slice(i + 1).map(([v]) => v);
        const taken = more[0] === 5 ? 2 : more[0] === 2 ? 4 : 0;
        const color = more[0] === 5 ? colorOf(clamp(more[1] ?? 0, 0, 255))
          : more[0] === 2 ? `rgb(${(parts.length ? parts.slice(-3) : more.slice(1, 4)).map((v) => clamp(v, 0, 255)).join(" ")})` : undefined;
        if (color !== undefined) style[n === 38 ? "fore" : "back"] = color;
        if (!parts.length) i += taken || list.length;
      } else if (n >= 30 && n < 38) style.fore = n - 30;
      else if (n >= 40 && n < 48) style.back = n - 40;
      else if (n >= 90 && n < 98) style.fore = n - 82;
      else if (n >= 100 && n < 108) style.back = n - 92;
    }
    this.style = Object.freeze(style);
  }

  // --- the cursor ----------------------------------------------------------------------------------

  line() {
    return this.lines[this.at.row];
  }

  go(row, column) {
    this.line().changed = true;
    this.at = { row: clamp(row, 0, this.rows - 1), column: clamp(column, 0, this.columns - 1) };
    this.line().changed = true;
    this.isFull = false;
  }

  goFromOrigin(row, column) {
    const { origin } = this.modes;
    this.go(origin ? Math.min(row + this.top, this.bottom) : row, column);
  }

  save() {
    this.saved = { at: { ...this.at }, style: this.style, charsets: [...this.charsets], shift: this.shift, origin: this.modes.origin };
  }

  restore() {
    const { at, style, charsets, shift, origin } = this.saved ?? { at: { row: 0, column: 0 }, style: PLAIN, charsets: [false, false], shift: 0, origin: false };
    this.style = style;
    this.charsets = [...charsets];
    this.shift = shift;
    this.modes.origin = origin;
    this.go(at.row, at.column);
  }

  setMargins(top, bottom) {
    if (top >= bottom || bottom > this.rows) return;
    this.top = top - 1;
    this.bottom = bottom - 1;
    this.goFromOrigin(0, 0);
  }

  feedLine() {
    this.isFull = false;
    if (this.at.row === this.bottom) this.scroll(1);
    else this.go(this.at.row + 1, this.at.column);
  }

  feedBack() {
    if (this.at.row === this.top) this.scroll(-1);
    else this.go(this.at.row - 1, this.at.column);
  }

  // --- cells ---------------------------------------------------------------------------------------

  put(c, code) {
    const width = columnsOf(code);
    if (width === 0) {
      this.combine(c);
      return;
    }
    if (this.isFull && this.modes.wrap) {
      this.at.column = 0;
      this.feedLine();
    }
    if (width === 2 && this.at.column === this.columns - 1) {
      if (!this.modes.wrap || this.columns < 2) return;
      this.at.column = 0;
      this.feedLine();
    }
    const shown = this.charsets[this.shift] && code >= 0x60 && code < 0x7f ? GRAPHICS[code - 0x60] : c;
    if (this.modes.insert) this.shiftCells(this.at.column, width);
    this.set(this.at.column, shown);
    if (width === 2) this.set(this.at.column + 1, "");
    this.last = c;
    this.isFull = this.at.column + width >= this.columns;
    this.at.column = Math.min(this.at.column + width, this.columns - 1);
  }

  // Half a wide character is none.
  set(column, text) {
    const { cells } = this.line();
    if (text !== "" && cells[column][0] === "" && column > 0) cells[column - 1] = [" ", cells[column - 1][1]];
    if (cells[column + 1]?.[0] === "") cells[column + 1] = [" ", cells[column + 1][1]];
    cells[column] = [text, this.style];
    this.line().changed = true;
  }

  combine(c) {
    const { cells } = this.line();
    let column = this.isFull ? this.at.column : this.at.column - 1;
    if (column > 0 && cells[column][0] === "") column--;
    if (column < 0 || cells[column][0].length + c.length > MARKS_MAX) return;
    cells[column] = [cells[column][0] + c, cells[column][1]];
    this.line().changed = true;
  }

  // n cells come in at the column, or -n go there.
  shiftCells(column, n) {
    const { cells } = this.line(), room = this.columns - column, m = Math.min(Math.abs(n), room);
    const blanks = Array.from({ length: m }, () => [" ", this.background()]);
    if (n > 0) cells.splice(column, room, ...blanks, ...cells.slice(column, this.columns - m));
    else cells.splice(column, room, ...cells.slice(column + m), ...blanks);
    this.line().changed = true;
    this.isFull = false;
  }

  erase(row, from, to) {
    const line = this.lines[row];
    for (let i = Math.max(from, 0); i < Math.min(to, this.columns); i++) line.cells[i] = [" ", this.background()];
    line.changed = true;
    this.isFull = false;
  }

  eraseLine(what) {
    const { row, column } = this.at;
    if (what === 0) this.erase(row, column, this.columns);
    if (what === 1) this.erase(row, 0, column + 1);
    if (what === 2) this.erase(row, 0, this.columns);
  }

  eraseScreen(what) {
    const { row } = this.at;
    if (what === 0 || what === 1) this.eraseLine(what);
    const [from, to] = { 0: [row + 1, this.rows], 1: [0, row], 2: [0, this.rows] }[what] ?? [0, 0];
    for (let i = from; i < to; i++) this.erase(i, 0, this.columns);
  }

  // --- rows ----------------------------------------------------------------------------------------

  // n blank ones come in at the row, or -n go there, within the margins.
  moveLines(row, n) {
    if (row < this.top || row > this.bottom) return;
    const m = Math.min(Math.abs(n), this.bottom - row + 1);
    for (let i = 0; i < m; i++) {
      this.lines.splice(n > 0 ? this.bottom : row, 1);
      this.lines.splice(n > 0 ? row : this.bottom, 0, this.blank());
    }
    this.line().changed = true;
  }

  // Up by n, or down.
  scroll(n) {
    this.line().changed = true; // the cursor leaves it
    const m = Math.min(Math.abs(n), this.bottom - this.top + 1);
    if (n > 0 && this.top === 0 && !this.main) this.leave(this.lines.slice(0, m));
    this.moveLines(this.top, -Math.sign(n) * m);
  }

  leave(lines) {
    this.left.push(...lines);
    if (this.left.length > KEPT) this.left.splice(0, this.left.length - KEPT);
  }

  resize(rows, columns) {
    if (rows === this.rows && columns === this.columns) return;
    this.columns = columns;
    const above = Math.max(this.at.row - rows + 1, 0); // what the cursor would be below
    if (!this.main) this.leave(this.lines.slice(0, above));
    this.lines = this.fit(this.lines.slice(above), rows);
    if (this.main) this.main = this.fit(this.main, rows);
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.at = { row: clamp(this.at.row - above, 0, rows - 1), column: clamp(this.at.column, 0, columns - 1) };
    this.isFull = false;
  }

  fit(lines, rows) {
    const fitted = lines.slice(0, rows);
    for (const line of fitted) {
      line.cells.length = Math.min(line.cells.length, this.columns);
      while (line.cells.length < this.columns) line.cells.push([" ", PLAIN]);
      line.changed = true;
    }
    while (fitted.length < rows) fitted.push(this.blank(PLAIN));
    return fitted;
  }
}

export const rowsKept = KEPT;
