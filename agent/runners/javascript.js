// The interpreter of a JavaScript context: node's vm, and its REPL for await at the top level.
//
// fd 3 is a socket to the agent (proto/code_frame.h): lines and code come in, frames go out.  What
// cells print goes to fds 1 and 2.  It is not started before a template's snapshot: node's OpenSSL
// generator cannot be reseeded from here, and clones would share their random numbers.
'use strict';
const fs = require('fs');
const net = require('net');
const repl = require('repl');
const stream = require('stream');
const util = require('util');
const path = require('path');
const vm = require('vm');

const READY = 1, RESULT = 2, ERROR = 3, ENDED = 4, BEGUN = 5;
const OK = 1, FAILED = 2, INTERRUPTED = 3;
const RESULT_MAX = 3 << 20;

// --- bytes out ----------------------------------------------------------------------------------
const never = new Int32Array(new SharedArrayBuffer(4));

// So many of them; a full pipe takes none for a while.  An interrupt ends a loop around this.
function writeSome(fd, data) {
  try {
    return fs.writeSync(fd, data);
  } catch (e) {
    if (e.code !== 'EAGAIN') throw e;
    Atomics.wait(never, 0, 0, 1);
    return 0;
  }
}

// What a cell prints is in the pipe when the call returns: of what node's own streams keep back
// while the pipe is full, the cell's end would know nothing, and exit() would lose it.
class Output extends stream.Writable {
  constructor(fd) {
    super();
    this.fd = fd;
    this.setMaxListeners(0); // an interrupted console leaves its own behind
    // A description of its own: child processes that share the pipe find it blocking.
    this.own = fs.openSync(`/proc/self/fd/${fd}`, fs.constants.O_WRONLY | fs.constants.O_NONBLOCK);
  }

  write(chunk, encoding, done) {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    let data = chunk instanceof Uint8Array ? chunk : Buffer.from(chunk, encoding);
    while (data.length > 0) data = data.subarray(writeSome(this.own, data));
    if (done) process.nextTick(done);
    return true;
  }

  _write(chunk, encoding, done) { // end(chunk) comes here
    this.write(chunk, encoding, done);
  }
}

for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
  Object.defineProperty(process, name, { configurable: true, enumerable: true, value: new Output(fd) });
}

// --- frames out ---------------------------------------------------------------------------------
function varint(n) {
  const out = [];
  for (; n > 127; n >>>= 7) out.push(n & 127 | 128);
  out.push(n);
  return Buffer.from(out);
}

function field(number, data) {
  data = Buffer.isBuffer(data) ? data : Buffer.from(String(data).replaceAll('\0', '?'));
  return Buffer.concat([varint(number << 3 | 2), varint(data.length), data]);
}

let unsent = Buffer.alloc(0); // of a frame that an interrupt cut, too

function send(kind, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(5);
  head.writeUInt32LE(payload.length);
  head[4] = kind;
  unsent = Buffer.concat([unsent, head, payload]);
  while (unsent.length > 0) unsent = unsent.subarray(writeSome(3, unsent));
}

function encode(mime, value) {
  if (Buffer.isBuffer(value) || value instanceof Uint8Array) return Buffer.from(value);
  if (typeof value !== 'string') return Buffer.from(JSON.stringify(value) ?? 'null');
  return mime.startsWith('image/') && mime !== 'image/svg+xml' ? Buffer.from(value, 'base64') : Buffer.from(value);
}

function sendResult(forms, isMain, count) {
  const parts = [], omitted = [];
  let total = 0;
  for (const [mime, value] of Object.entries(forms)) {
    const data = encode(mime, value);
    total += data.length;
    if (total > RESULT_MAX) {
      total -= data.length;
      omitted.push(field(4, mime.slice(0, 200)));
    } else {
      parts.push(field(1, Buffer.concat([field(1, mime.slice(0, 200)), field(2, data)])));
    }
  }
  if (isMain) parts.push(Buffer.from([0x10, 1]));
  parts.push(Buffer.from([0x18]), varint(count), ...omitted.slice(0, 16));
  send(RESULT, Buffer.concat(parts));
}

function sendError(error) {
  const isError = util.types.isNativeError(error) || error instanceof Error;
  const name = isError ? String(error.name) : typeof error;
  const value = isError ? String(error.message) : util.inspect(error);
  const own = (line) => !/^\s+at /.test(line) || !(line.includes(__filename) || /\(?node:|new Promise \(<anonymous>\)|^\s+at REPL\d*:/.test(line));
  const text = isError && error.stack ? String(error.stack).split('\n').filter(own).join('\n') : value;
  send(ERROR, Buffer.concat([field(1, name.slice(0, 1000)), field(2, value.slice(0, 20000)), field(3, text.slice(0, 60000))]));
}

function sendEnded(outcome) {
  send(ENDED, Buffer.from([outcome, outcome === OK ? 0 : 1, 0, 0, 0]));
}

// --- cells --------------------------------------------------------------------------------------
let count = 0, interrupted = false, finish = null, refuse = null;
const server = repl.start({
  prompt: '', terminal: false, useGlobal: true,
  input: new stream.PassThrough(),
  output: new stream.Writable({ write(_chunk, _encoding, done) { done(); } }),
});
// The REPL hands what a cell throws to its domain, and what callbacks throw later too.
const late = (error) => process.stderr.write(`Uncaught ${util.inspect(error)}\n`);
server._domain.removeAllListeners('error');
server._domain.on('error', (error) => (refuse ?? late)(error));
process.on('uncaughtException', late);
process.on('unhandledRejection', late);
process.on('SIGINT', () => {
  interrupted = true; // what awaits is left behind; a loop is ended by the virtual machine
  finish?.(Object.assign(new Error('interrupted'), { name: 'Interrupted', stack: '' }));
});
global.require = require('module').createRequire(path.join(process.cwd(), 'cell.js'));
global.display = (...values) => {
  for (const value of values) {
    const isForms = value !== null && typeof value === 'object' && Object.keys(value).some((k) => /^[a-z]+\/[a-z+.-]+$/.test(k));
    sendResult(isForms ? value : { 'text/plain': util.inspect(value) }, false, count);
  }
};

// The script, or null when only the REPL understands it.
function compile(code, filename) {
  const tries = /^\s*\{/.test(code) && !/;\s*$/.test(code) ? [`(${code}\n)`, code] : [code];
  for (const [i, text] of tries.entries()) {
    try {
      return new vm.Script(text, { filename, importModuleDynamically: (name) => import(name) });
    } catch (error) {
      if (/\bawait\b/.test(code)) return null;
      if (i === tries.length - 1) throw error;
    }
  }
}

function run(code, number) {
  return new Promise((done) => {
    interrupted = false;
    count = number;
    finish = (error, value) => {
      if (!finish) return;
      finish = null;
      if (error) {
        sendError(error instanceof repl.Recoverable ? error.err : error);
        sendEnded(interrupted || error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? INTERRUPTED : FAILED);
      } else {
        if (value !== undefined) sendResult({ 'text/plain': util.inspect(value) }, true, number);
        sendEnded(OK);
      }
      done();
    };
    refuse = finish; // while it runs without a break
    send(BEGUN);
    try {
      const script = compile(code, `cell ${number}`);
      if (script) finish(null, script.runInThisContext({ breakOnSigint: true }));
      else server.eval(code + '\n', server.context, `cell ${number}`, (...answer) => finish?.(...answer));
    } catch (error) {
      finish?.(error);
    }
    refuse = null;
  });
}

// --- variables of one cell ----------------------------------------------------------------------
const { env } = process; // user code may give process.env another meaning

// Set these, undefined = delete; what puts back what was there.
function exchange(variables) {
  const before = new Map();
  for (const [name, value] of variables) {
    before.set(name, Object.hasOwn(env, name) ? env[name] : undefined);
    if (value === undefined) delete env[name];
    else env[name] = value;
  }
  return before;
}

// --- the loop -----------------------------------------------------------------------------------
let input = Buffer.alloc(0), working = false, variables = new Map();
async function take() {
  if (working) return;
  working = true;
  for (;;) {
    const end = input.indexOf(10);
    if (end < 0) break;
    const [verb, number, bytes] = input.subarray(0, end).toString().split(' ');
    const need = verb === 'seed' ? 0 : Number(verb === 'env' ? number : bytes);
    if (input.length < end + 1 + need) break;
    const text = input.subarray(end + 1, end + 1 + need).toString();
    input = input.subarray(end + 1 + need);
    if (verb === 'env') {
      const at = text.indexOf('=');
      variables.set(text.slice(0, at), text.slice(at + 1));
    } else if (verb !== 'seed') {
      const before = exchange(variables);
      await run(text, verb === 'run' ? Number(number) : 0);
      exchange(before);
      variables = new Map();
    }
  }
  working = false;
}

const wire = new net.Socket({ fd: 3, readable: true, writable: false });
wire.on('data', (data) => {
  input = Buffer.concat([input, data]);
  take();
});
wire.on('end', () => process.exit(0));
send(READY);
