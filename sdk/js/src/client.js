// The service as one caller sees it.
import { randomUUID } from "node:crypto";

import { connect } from "./connect.js";
import { ClocheError, CodeFailed, CommandFailed, fromGrpc } from "./errors.js";
import { Result, sandboxInfo, snapshotInfo, templateInfo } from "./results.js";
import { Sandbox } from "./sandbox.js";
import { Output, beside, chunks, command, follow, idleActionOf, languageOf, ns, pages, pairs, room } from "./stream.js";
import { Service } from "./wire.js";

const LOADING = 300, CALLING = 60, TIMEOUT = 60; // s: the limits of a function unless one gives others, and of what is around them
const SERVICES = ["Job", "Sandbox", "Exec", "Code", "File", "Port", "Snapshot", "Function", "Template"];

/** A connection with one key: `await Client.connect()`. */
export class Client {
    #channel;

    /** Options that are not given are found as `cloche` finds them; timeout: seconds until it is given up that anybody answers. */
    static async connect(options = {}) {
        const [channel, headers] = await connect(options);
        return new Client(channel, headers);
    }

    constructor(channel, headers) {
        this.#channel = channel;
        this.services = Object.fromEntries(SERVICES.map((name) => [name.toLowerCase(), new Service(channel, headers, `${name}Service`, fromGrpc)]));
    }

    close() {
        this.#channel.close();
    }

    [Symbol.dispose]() {
        this.close();
    }

    // --- jobs ---------------------------------------------------------------------------------------

    /** Run a command in a machine of its own, which is destroyed after it: its Result.  Aborting by `signal` cancels the job. */
    async run(argv, options = {}) {
        const { template = "python", snapshot, attempts, maxQueueWait, check, stdin } = options;
        const spec = {
            template: snapshot ? "" : template, snapshot, command: command(argv, options), maxAttempts: attempts, maxQueueWaitNs: ns(maxQueueWait),
            ...room(options),
        };
        const result = await new Job(this.services.job, spec, stdin, new Output(options)).run(options.signal);
        if (check && !result.ok)
            throw new CommandFailed(result);
        return result;
    }

    // --- sandboxes ----------------------------------------------------------------------------------

    /** Make a sandbox.  It ends with kill(), or ttl seconds after its last use; `await using` ends it with its block. */
    async sandbox(options = {}) {
        const { template = "python", snapshot, ttl, onIdle, wakeOnUse } = options;
        const { sandbox } = await this.services.sandbox.create({
            template: snapshot ? "" : template, snapshot, ttlNs: ns(ttl), onIdle: idleActionOf(onIdle), wakeOnUse,
            idempotencyKey: randomUUID(), ...room(options),
        });
        return new Sandbox(this, sandbox.id);
    }

    /** One that is there already. */
    async getSandbox(id) {
        const { sandbox } = await this.services.sandbox.get({ sandboxId: id });
        return new Sandbox(this, sandbox.id);
    }

    /** Those that live, or with `ended` all that are known. */
    sandboxes({ labels, ended } = {}) {
        return pages(this.services.sandbox.list, { labels: pairs(labels, "key"), includeEnded: ended }, "sandboxes", sandboxInfo);
    }

    // --- snapshots, functions, templates ------------------------------------------------------------

    snapshots({ labels } = {}) {
        return pages(this.services.snapshot.list, { labels: pairs(labels, "key") }, "snapshots", snapshotInfo);
    }

    /** By its name or id.  A function is one, too. */
    async deleteSnapshot(name) {
        await this.services.snapshot.delete({ snapshot: name });
    }

    /** Load source once and keep it; calls run in copies of that.  What the source throws is CodeFailed. */
    async createFunction(name, source, options = {}) {
        const { entry, language = "python", template, snapshot, replace, timeout, keep } = options;
        const answer = await this.services.function.create({
            name, source, entry, language: languageOf(language), template, snapshot, replace, timeoutNs: ns(timeout), keepNs: ns(keep), ...room(options),
        }, (timeout ?? LOADING) + TIMEOUT);
        if (!answer.function)
            throw new CodeFailed(answer);
        return this.function(answer.function.name);
    }

    /** One that was made before: (args, {timeout, entry}) => what it returns.  An array is its arguments by place, an object by name. */
    function(name) {
        return async (args = [], { timeout, entry } = {}) => {
            const answer = await this.services.function.call({ function: name, entry, timeoutNs: ns(timeout), arguments: JSON.stringify(args) },
                (timeout ?? CALLING) + TIMEOUT);
            if (answer.outcome !== "CELL_OUTCOME_OK")
                throw new CodeFailed(answer);
            return JSON.parse(answer.result);
        };
    }

    templates() {
        return pages(this.services.template.list, {}, "templates", templateInfo);
    }
}

/** One job from its admission to its end. */
class Job {
    #service; #request; #stdin; #output; #result;
    #id = ""; #attempt = 0;
    #broken = new AbortController(); // its input is

    constructor(service, spec, stdin, output) {
        this.#service = service;
        this.#request = { spec, idempotencyKey: randomUUID() };
        this.#stdin = stdin;
        this.#output = output;
    }

    async run(signal) {
        const either = signal ? AbortSignal.any([signal, this.#broken.signal]) : this.#broken.signal;
        try {
            for await (const event of follow(() => this.#open(), either))
                this.#take(event);
        } catch (err) {
            await this.#cancel();
            throw err;
        }
        if (!this.#result)
            throw new ClocheError("PEER", `the stream of ${this.#id || "a job"} ended before the job`);
        return this.#result;
    }

    #open() {
        return this.#id ? this.#service.watch({ jobId: this.#id, attempt: this.#attempt, ...this.#output.offsets }) : this.#service.run(this.#request);
    }

    /** Who leaves the stream that it began with has cancelled it; who left another one has not. */
    async #cancel() {
        if (this.#id)
            await this.#service.cancel({ jobId: this.#id }).catch(() => {}); // why we leave is what is told
    }

    #take({ event, accepted, started, output, ended }) {
        if (event === "accepted") {
            this.#id = accepted.jobId;
            if (this.#stdin !== undefined)
                beside(() => this.#service.writeStdin(this.#input()), (err) => this.#broken.abort(err));
        } else if (event === "started") {
            if (![0, started.attempt].includes(this.#attempt))
                this.#output.restart();
            this.#attempt = started.attempt;
        } else if (event === "output") {
            this.#output.take(output);
        } else if (event === "ended") {
            this.#result = new Result(ended.result, this.#output);
        }
    }

    async* #input() {
        yield { jobId: this.#id };
        for await (const data of chunks(this.#stdin))
            yield { data };
        yield { eof: true };
    }
}
