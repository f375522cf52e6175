// A machine that is kept, and what one does in it.
import { randomUUID } from "node:crypto";
import { constants } from "node:os";

import { portsDomain } from "./connect.js";
import { ClocheError, CommandFailed } from "./errors.js";
import { connect, forward } from "./ports.js";
import { Cell, CodeResult, Result, fileInfo, sandboxInfo, snapshotInfo } from "./results.js";
import { Output, beside, chunks, command, follow, languageOf, messagesOf, nameOf, ns, pages, pairs } from "./stream.js";

const SLOW = 600; // s: memory may have to be written or read

/** Made by Client.sandbox().  `files` is its file system. */
export class Sandbox {
    #services; #client;

    constructor(client, id) {
        this.#client = client;
        this.#services = client.services;
        this.id = id;
        this.files = new Files(client.services.file, id);
    }

    async [Symbol.asyncDispose]() {
        await this.kill();
    }

    // --- life ---------------------------------------------------------------------------------------

    async info() {
        return sandboxInfo((await this.#services.sandbox.get({ sandboxId: this.id })).sandbox);
    }

    /** End it.  One that has ended stays so. */
    async kill() {
        await this.#services.sandbox.kill({ sandboxId: this.id });
    }

    /** It lives at least ttl seconds more. */
    async extend(ttl) {
        await this.#services.sandbox.extend({ sandboxId: this.id, ttlNs: ns(ttl) });
    }

    /** It rests, memory and processes and all, without CPU or memory, until resume(), or for `keep` seconds. */
    async pause({ keep } = {}) {
        await this.#services.sandbox.pause({ sandboxId: this.id, keepNs: ns(keep) }, SLOW);
    }

    /** False: it was not paused. */
    async resume({ ttl } = {}) {
        return (await this.#services.sandbox.resume({ sandboxId: this.id, ttlNs: ns(ttl) }, SLOW)).wasPaused;
    }

    /** n copies of it as it is now, which run: memory, processes, files and code contexts.  All are of one moment. */
    async fork(n = 1, { ttl, labels } = {}) {
        const moment = randomUUID(), copies = [];
        try {
            for (let i = 0; i < n; i++) {
                const request = { sandboxId: this.id, ttlNs: ns(ttl), labels: pairs(labels, "key"), moment, idempotencyKey: randomUUID() };
                copies.push(new Sandbox(this.#client, (await this.#services.sandbox.fork(request, SLOW)).sandbox.id));
            }
        } catch (err) {
            await Promise.allSettled(copies.map((copy) => copy.kill())); // all or none
            throw err;
        }
        return copies;
    }

    /** Keep it as it is: sandbox({snapshot}) and run(argv, {snapshot}) begin with that.  It runs on. */
    async snapshot(name, { replace, keep, labels } = {}) {
        const request = { sandboxId: this.id, name, replace, keepNs: ns(keep), labels: pairs(labels, "key"), idempotencyKey: randomUUID() };
        return snapshotInfo((await this.#services.snapshot.create(request, SLOW)).snapshot);
    }

    // --- commands -----------------------------------------------------------------------------------

    /** Run a command and wait for its end: a Result.  The options are those of Client.run() that are about commands. */
    async run(argv, options = {}) {
        const process = await this.start(argv, options), broken = new AbortController();
        if (options.stdin !== undefined)
            beside(() => process.write(options.stdin, { eof: true }), (err) => broken.abort(err));
        try {
            const signal = options.signal ? AbortSignal.any([options.signal, broken.signal]) : broken.signal;
            const result = await process.wait({ ...options, signal });
            if (options.check && !result.ok)
                throw new CommandFailed(result);
            return result;
        } catch (err) {
            if (!(err instanceof CommandFailed))
                await process.kill().catch(() => {}); // why we leave is what is told
            throw err;
        }
    }

    /** Begin a command: a Process.  stdin: true where it will be written to; pty: [rows, columns] of its terminal. */
    async start(argv, options = {}) {
        const { execId } = await this.#services.exec.start({ sandboxId: this.id, command: command(argv, options) });
        return this.process(execId);
    }

    /** One that was begun before, by its id. */
    process(id) {
        return new Process(this.#services.exec, this.id, id);
    }

    // --- code ---------------------------------------------------------------------------------------

    /** Run a cell where what the cells before made is still there: a Cell.  What the code throws is in it (`error`). */
    async code(source, { language = "python", context, timeout, env, onStdout, onStderr, onResult, signal } = {}) {
        const request = {
            sandboxId: this.id, contextId: context, language: context ? undefined : languageOf(language), code: source, timeoutNs: ns(timeout),
            env: pairs(env, "name"),
        };
        const seen = { context: "", results: [], error: undefined, output: new Output({ onStdout, onStderr }) };
        for await (const { event, started, output, result, error, ended } of messagesOf(this.#services.code.runCode(request), signal)) {
            if (event === "started")
                seen.context = started.contextId;
            else if (event === "output")
                seen.output.take(output);
            else if (event === "error")
                seen.error = error;
            else if (event === "result") {
                seen.results.push(new CodeResult(result));
                onResult?.(seen.results.at(-1));
            } else if (event === "ended")
                return new Cell(ended, seen);
        }
        throw new ClocheError("PEER", "the stream of a cell ended before the cell");
    }

    /** Another interpreter, with nothing of the others: its id. */
    async createContext(language = "python", { cwd, env } = {}) {
        const request = { sandboxId: this.id, language: languageOf(language), cwd, env: pairs(env, "name") };
        return (await this.#services.code.createContext(request)).context.id;
    }

    async restartContext(context = "python") {
        await this.#services.code.restartContext({ sandboxId: this.id, contextId: context });
    }

    /** What runs there, as Ctrl-C would; false: nothing did. */
    async interrupt(context = "python") {
        return (await this.#services.code.interruptContext({ sandboxId: this.id, contextId: context })).wasRunning;
    }

    // --- servers ------------------------------------------------------------------------------------

    /** A connection to what listens on a port in it: a Duplex.  Error STATE: nobody does. */
    connect(port) {
        return connect(this.#services.port, this.id, port);
    }

    /** A server of node:net on this host whose connections lead there: `address().port` is its port, close() ends it. */
    forward(port, options) {
        return forward(this.#services.port, this.id, port, options);
    }

    /**
     * An address, for a browser, of what listens on a port in it; whoever has it may use it, for ttl seconds or while the sandbox lives.
     * domain: the gateway's ports-domain, as "https://sandboxes.example.org" (docs/ports.md).
     */
    async url(port, { ttl, domain = portsDomain() } = {}) {
        const { link } = await this.#services.port.createLink({ sandboxId: this.id, port, ttlNs: ns(ttl) });
        const [, scheme, host] = /^(?:(https?):\/\/)?(.*)$/.exec(domain), [, id, secret] = link.split("_");
        if (scheme === "http" || (!scheme && host.split(":")[0].endsWith("localhost")))
            return `http://${port}-sbx-${id}.${secret}.${host}/`;
        return `https://${port}-sbx-${id}.${host}/?cloche_link=${link}`;
    }
}

/** A command that runs in a sandbox.  It goes on when nobody follows it. */
export class Process {
    #service; #at;

    constructor(service, sandboxId, id) {
        this.#service = service;
        this.#at = { sandboxId, execId: id };
        this.id = id;
    }

    /** What it writes, from the beginning to its end: {stream: "stdout" | "stderr", data}.  Nothing of it is kept. */
    async* [Symbol.asyncIterator]() {
        for await (const { event, output } of this.#follow(new Output({}, false)))
            if (event === "output")
                yield { stream: nameOf(output.stream, "STREAM_").toLowerCase(), data: output.data };
    }

    /** Its end, with all that it wrote: a Result. */
    async wait({ onStdout, onStderr, signal } = {}) {
        const output = new Output({ onStdout, onStderr });
        for await (const { event, ended } of this.#follow(output, signal))
            if (event === "ended")
                return new Result(ended, output);
        throw new ClocheError("PEER", `the stream of ${this.id} ended before the command`);
    }

    /** To its stdin: bytes, a text, or a stream of either, until it is taken.  The command was started with stdin: true. */
    async write(data, { eof = false } = {}) {
        const at = this.#at;
        await this.#service.writeStdin((async function* () {
            yield at;
            for await (const piece of chunks(data))
                yield { data: piece };
            if (eof)
                yield { eof };
        })());
    }

    async closeStdin() {
        await this.write("", { eof: true });
    }

    /** A number, or a name as "SIGTERM". */
    async signal(signal) {
        await this.#service.signal({ ...this.#at, signal: typeof signal === "number" ? signal : constants.signals[signal] });
    }

    async kill() {
        await this.signal("SIGKILL");
    }

    /** Its terminal. */
    async resize(rows, columns) {
        await this.#service.resize({ ...this.#at, size: { rows, columns } });
    }

    async* #follow(output, signal) {
        for await (const event of follow(() => this.#service.attach({ ...this.#at, ...output.offsets }), signal)) {
            if (event.event === "output")
                output.take(event.output);
            yield event;
        }
    }
}

/** The file system of a sandbox.  Paths are absolute, or begin in the user's home; user: whose rights count. */
export class Files {
    #service; #sandboxId;

    constructor(service, sandboxId) {
        this.#service = service;
        this.#sandboxId = sandboxId;
    }

    #at(path, options) {
        return { sandboxId: this.#sandboxId, path, user: options?.user };
    }

    /** All of it, as a Buffer. */
    async read(path, options) {
        const pieces = [];
        for await (const piece of this.stream(path, options))
            pieces.push(piece);
        return Buffer.concat(pieces);
    }

    async readText(path, options) {
        return (await this.read(path, options)).toString();
    }

    /** The same in pieces, for what is large. */
    async* stream(path, options) {
        for await (const { data } of messagesOf(this.#service.read(this.#at(path, options))))
            if (data.length)
                yield data;
    }

    /** Bytes, a text, or a stream of either: how many bytes there were.  It is there whole or not at all. */
    async write(path, data, options = {}) {
        const first = { ...this.#at(path, options), mode: options.mode };
        const { bytes } = await this.#service.write((async function* () {
            yield first;
            for await (const piece of chunks(data))
                yield { data: piece };
            yield { commit: true };
        })());
        return bytes;
    }

    list(path, options) {
        return pages(this.#service.list, this.#at(path, options), "files", fileInfo);
    }

    async stat(path, options) {
        return fileInfo((await this.#service.stat(this.#at(path, options))).file);
    }

    async exists(path, options) {
        try {
            await this.stat(path, options);
            return true;
        } catch (err) {
            if (err.code === "NOTFOUND")
                return false;
            throw err;
        }
    }

    async mkdir(path, options = {}) {
        await this.#service.makeDir({ ...this.#at(path, options), mode: options.mode ?? 0o755, parents: options.parents ?? true });
    }

    async remove(path, options = {}) {
        await this.#service.remove({ ...this.#at(path, options), recursive: options.recursive });
    }

    async rename(from, to, { user } = {}) {
        await this.#service.rename({ sandboxId: this.#sandboxId, from, to, user });
    }

    /** {kind, path}, one after the other, once this has resolved and until one leaves; kind LOST: there were more than could be told. */
    async watch(path, options = {}) {
        const stream = this.#service.watch({ ...this.#at(path, options), recursive: options.recursive });
        await new Promise((resolve) => stream.once("metadata", resolve).once("error", resolve)); // what failed is told to who reads on
        return changes(stream, options.signal);
    }
}

async function* changes(stream, signal) {
    for await (const { changes: told, lost } of messagesOf(stream, signal)) {
        yield* told.map(({ kind, path }) => ({ kind: nameOf(kind, "FILE_CHANGE_KIND_"), path }));
        if (lost)
            yield { kind: "LOST", path: "" };
    }
}
