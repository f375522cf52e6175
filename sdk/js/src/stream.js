// Following what runs: its output, from where we were, over takeovers; and its input.
import { setTimeout as sleep } from "node:timers/promises";

import { ClocheError, fromGrpc } from "./errors.js";

const CHUNK = 512 << 10; // bytes a message
const PATIENCE = 120; // s without a word from any scheduler until a stream is given up
const PAUSE = 200; // ms between tries

export const ns = (seconds) => Math.round((seconds ?? 0) * 1e9);
export const nameOf = (value, prefix) => typeof value === "string" ? value.slice(prefix.length) : String(value); // a newer server's is a number
export const pairs = (object, key) => Object.entries(object ?? {}).map(([name, value]) => ({ [key]: name, value: String(value) }));

/** What protobufjs would leave out when it does not know the name. */
const oneOf = (prefix, names) => (name) => {
    if (name !== undefined && !names.includes(name))
        throw new TypeError(`${name}: none of ${names.join(", ")}`);
    return name && prefix + name.toUpperCase();
};
export const languageOf = oneOf("LANGUAGE_", ["python", "bash", "javascript"]), idleActionOf = oneOf("IDLE_ACTION_", ["end", "pause"]);

/** Of answers that come page by page. */
export async function* pages(method, request, field, of) {
    for (let pageToken = ""; ;) {
        const page = await method({ ...request, pageToken });
        yield* page[field].map(of);
        pageToken = page.nextPageToken;
        if (!pageToken)
            return;
    }
}

export function command(argv, { env, cwd, user, timeout, outputMax, stdin, pty }) {
    return {
        argv: typeof argv === "string" ? ["sh", "-c", argv] : argv, env: pairs(env, "name"), cwd, user, timeoutNs: ns(timeout), outputMaxBytes: outputMax,
        openStdin: stdin !== undefined && stdin !== false || pty !== undefined, pty: pty && { rows: pty[0], columns: pty[1] },
    };
}

/** What a job, a sandbox and a function are given. */
export function room({ vcpus, memoryMib, diskMib, net, labels }) {
    return {
        resources: vcpus || memoryMib || diskMib ? { vcpus, memoryMib, diskMib } : undefined,
        networkGrant: net?.length ? { allow: [net].flat() } : undefined, labels: pairs(labels, "key"),
    };
}

/** Bytes, a text, or a stream of either, in pieces. */
export async function* chunks(data) {
    if (typeof data === "string" || data instanceof Uint8Array)
        data = [data];
    for await (const piece of data) {
        const bytes = Buffer.from(piece);
        for (let at = 0; at < bytes.length; at += CHUNK)
            yield bytes.subarray(at, at + CHUNK);
    }
}

/** Both streams so far.  Where a listener is given it hears each piece as it comes; kept is what there is memory for. */
export class Output {
    #pieces = { STREAM_STDOUT: [], STREAM_STDERR: [] };
    #taken = { STREAM_STDOUT: 0, STREAM_STDERR: 0 };

    constructor({ onStdout, onStderr } = {}, keep = true) {
        this.listeners = { STREAM_STDOUT: onStdout, STREAM_STDERR: onStderr };
        this.keep = keep;
    }

    take({ stream, data }) {
        this.#taken[stream] += data.length;
        if (this.keep)
            this.#pieces[stream].push(data);
        this.listeners[stream]?.(data);
    }

    /** Another attempt begins; what the one before said does not count. */
    restart() {
        this.#pieces = { STREAM_STDOUT: [], STREAM_STDERR: [] };
        this.#taken = { STREAM_STDOUT: 0, STREAM_STDERR: 0 };
    }

    /** Where a stream that is cut off goes on, as fields of the request for it. */
    get offsets() {
        return { stdoutOffset: this.#taken.STREAM_STDOUT, stderrOffset: this.#taken.STREAM_STDERR };
    }

    get stdout() {
        return Buffer.concat(this.#pieces.STREAM_STDOUT);
    }

    get stderr() {
        return Buffer.concat(this.#pieces.STREAM_STDERR);
    }
}

/** The messages of one stream; leaving them cancels it. */
export async function* messagesOf(stream, signal) {
    const leave = () => stream.cancel();
    signal?.throwIfAborted();
    signal?.addEventListener("abort", leave);
    try {
        yield* stream;
    } catch (err) {
        signal?.throwIfAborted();
        throw fromGrpc(err);
    } finally {
        signal?.removeEventListener("abort", leave);
        stream.on("error", () => {}); // that it was cancelled is no news
        stream.cancel();
    }
}

/** The events of what goes on when its stream is cut off.  openNext gives a stream from what was seen so far. */
export async function* follow(openNext, signal) {
    for (let cutSince; ;) {
        try {
            for await (const event of messagesOf(openNext(), signal)) {
                cutSince = undefined;
                yield event;
            }
            return;
        } catch (err) {
            cutSince ??= performance.now();
            if (err.code !== "UNAVAILABLE" || performance.now() - cutSince > PATIENCE * 1000)
                throw err;
        }
        await sleep(PAUSE, undefined, { signal });
    }
}

/**
 * Write its input while it is followed.  Who does not read it may end first: how it ended is told there.  What reading the input throws
 * goes to fail().
 */
export function beside(write, fail) {
    write().catch((err) => err instanceof ClocheError || fail(err));
}
