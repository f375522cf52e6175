import type { Server } from "node:net";
import type { Duplex, Readable } from "node:stream";

export type Data = string | Uint8Array | AsyncIterable<string | Uint8Array> | Iterable<string | Uint8Array> | Readable;
export type Language = "python" | "bash" | "javascript";
export type Outcome = "EXITED" | "SIGNALED" | "TIMED_OUT" | "OOM_KILLED" | "NOT_FOUND" | "NOT_EXECUTABLE" | "CANCELLED" | "FAILED" | (string & {});
export type CellOutcome = "OK" | "ERROR" | "INTERRUPTED" | "TIMED_OUT" | "EXITED" | "OOM_KILLED" | "RESTARTED" | "FAILED" | (string & {});
export type UnitState = "QUEUED" | "STARTING" | "RUNNING" | "PAUSED" | "ENDED" | (string & {});

export interface ConnectOptions {
    /** HOST:PORT, unix:PATH, or several schedulers that stand by for one another, with commas between. */
    endpoint?: string;
    /** An API key or a bearer token. */
    key?: string;
    /** The file of the CA that the server's certificate is of. */
    ca?: string;
    /** In plain text to another host, too. */
    insecure?: boolean;
    /** Seconds until it is given up that anybody answers (20). */
    timeout?: number;
}

export interface Listeners {
    onStdout?: (data: Buffer) => void;
    onStderr?: (data: Buffer) => void;
}

export interface CommandOptions {
    env?: Record<string, string>;
    cwd?: string;
    user?: string;
    /** Seconds; the service's default is 300. */
    timeout?: number;
    /** Bytes of output that are kept; the service's default is 64 MiB. */
    outputMax?: number;
}

export interface RunOptions extends CommandOptions, Listeners {
    stdin?: Data;
    /** Throw CommandFailed unless it ends with exit status 0. */
    check?: boolean;
    /** Aborting ends what runs. */
    signal?: AbortSignal;
}

/** What a job, a sandbox and a function are given. */
export interface RoomOptions {
    vcpus?: number;
    memoryMib?: number;
    diskMib?: number;
    /** What it may reach, as "example.org"; nothing unless given. */
    net?: string | string[];
    labels?: Record<string, string>;
}

export interface JobOptions extends RunOptions, RoomOptions {
    /** "python" unless given. */
    template?: string;
    /** Begin with it in place of a template. */
    snapshot?: string;
    /** How often it may begin when a worker is lost. */
    attempts?: number;
    /** Seconds that it may wait for quota and capacity. */
    maxQueueWait?: number;
}

export interface SandboxOptions extends RoomOptions {
    template?: string;
    snapshot?: string;
    /** Seconds after its last use. */
    ttl?: number;
    /** What happens then. */
    onIdle?: "end" | "pause";
    /** Its next use resumes it. */
    wakeOnUse?: boolean;
}

export interface FunctionOptions extends RoomOptions {
    /** What a call calls; the name unless given. */
    entry?: string;
    language?: Language;
    template?: string;
    snapshot?: string;
    replace?: boolean;
    timeout?: number;
    keep?: number;
}

export type RemoteFunction = (args?: unknown[] | Record<string, unknown>, options?: { timeout?: number; entry?: string }) => Promise<any>;

export class ClocheError extends Error {
    /** A name of docs/errors.md, as "NOTFOUND" or "QUOTA". */
    readonly code: string;
    /** Seconds until it may be tried again, where the service names them. */
    readonly retryAfter?: number;
    readonly isRetryable: boolean;
}

export class CommandFailed extends ClocheError {
    readonly result: Result;
}

export class CodeFailed extends ClocheError {
    readonly error?: CodeError;
    readonly stdout: Buffer;
    readonly stderr: Buffer;
}

export interface CodeError {
    name: string;
    value: string;
    traceback: string;
}

/** What became of a command. */
export class Result {
    readonly outcome: Outcome;
    readonly exitCode: number;
    readonly signal: number;
    /** Where the service ended it: WORKER_LOST, QUEUE_DEADLINE, EXPIRED, REQUESTED ... */
    readonly reason: string;
    readonly message: string;
    readonly cpu: number;
    readonly wall: number;
    readonly peakMemory: number;
    readonly stdout: Buffer;
    readonly stderr: Buffer;
    /** More was written than is kept. */
    readonly truncated: boolean;
    readonly ok: boolean;
    /** Of stdout. */
    readonly text: string;
    /** In words. */
    readonly endedAs: string;
}

/** One thing that a cell showed. */
export class CodeResult {
    /** In each form that it has, by MIME type. */
    readonly data: Record<string, Buffer>;
    /** What the last line is worth, not what was displayed. */
    readonly isMain: boolean;
    readonly text: string;
}

/** What became of code. */
export class Cell {
    readonly outcome: CellOutcome;
    readonly message: string;
    readonly executionCount: number;
    readonly wall: number;
    readonly context: string;
    readonly results: CodeResult[];
    readonly error?: CodeError;
    readonly stdout: Buffer;
    readonly stderr: Buffer;
    readonly ok: boolean;
    /** What its last line is worth; undefined when it is worth nothing. */
    readonly text?: string;
}

export interface SandboxInfo {
    id: string;
    template: string;
    state: UnitState;
    vcpus: number;
    memoryMib: number;
    labels: Record<string, string>;
    created?: Date;
    expires?: Date;
    reason: string;
    worker: string;
    driver: string;
}

export interface SnapshotInfo {
    id: string;
    name: string;
    template: string;
    sandbox: string;
    labels: Record<string, string>;
    created?: Date;
    size: number;
    /** What a call calls; "" where it is no function. */
    entry: string;
}

export interface FileInfo {
    name: string;
    kind: "REGULAR" | "DIRECTORY" | "SYMLINK" | "OTHER" | (string & {});
    size: number;
    mode: number;
    modified?: Date;
    linkTarget: string;
}

export interface FileChange {
    kind: "CREATED" | "WRITTEN" | "REMOVED" | "MOVED" | "ATTRIBUTES" | "LOST" | (string & {});
    path: string;
}

export interface Template {
    name: string;
    driver: string;
    warm: number;
    workers: number;
}

/** A connection with one key. */
export class Client {
    static connect(options?: ConnectOptions): Promise<Client>;
    close(): void;
    /** Run a command, a list or a text for `sh -c`, in a machine of its own, which is destroyed after it. */
    run(argv: string | string[], options?: JobOptions): Promise<Result>;
    sandbox(options?: SandboxOptions): Promise<Sandbox>;
    getSandbox(id: string): Promise<Sandbox>;
    sandboxes(options?: { labels?: Record<string, string>; ended?: boolean }): AsyncIterable<SandboxInfo>;
    snapshots(options?: { labels?: Record<string, string> }): AsyncIterable<SnapshotInfo>;
    deleteSnapshot(name: string): Promise<void>;
    createFunction(name: string, source: string, options?: FunctionOptions): Promise<RemoteFunction>;
    function(name: string): RemoteFunction;
    templates(): AsyncIterable<Template>;
}

export class Sandbox {
    readonly id: string;
    readonly files: Files;
    info(): Promise<SandboxInfo>;
    kill(): Promise<void>;
    extend(ttl: number): Promise<void>;
    pause(options?: { keep?: number }): Promise<void>;
    resume(options?: { ttl?: number }): Promise<boolean>;
    fork(n?: number, options?: { ttl?: number; labels?: Record<string, string> }): Promise<Sandbox[]>;
    snapshot(name?: string, options?: { replace?: boolean; keep?: number; labels?: Record<string, string> }): Promise<SnapshotInfo>;
    run(argv: string | string[], options?: RunOptions): Promise<Result>;
    start(argv: string | string[], options?: CommandOptions & { stdin?: boolean; pty?: [rows: number, columns: number] }): Promise<Process>;
    process(id: string): Process;
    code(source: string, options?: Listeners & {
        language?: Language; context?: string; timeout?: number; env?: Record<string, string>; onResult?: (result: CodeResult) => void; signal?: AbortSignal;
    }): Promise<Cell>;
    createContext(language?: Language, options?: { cwd?: string; env?: Record<string, string> }): Promise<string>;
    restartContext(context?: string): Promise<void>;
    interrupt(context?: string): Promise<boolean>;
    connect(port: number): Promise<Duplex>;
    forward(port: number, options?: { host?: string; localPort?: number }): Promise<Server>;
    url(port: number, options?: { ttl?: number; domain?: string }): Promise<string>;
}

/** A command that runs in a sandbox.  It goes on when nobody follows it. */
export class Process implements AsyncIterable<{ stream: "stdout" | "stderr"; data: Buffer }> {
    readonly id: string;
    [Symbol.asyncIterator](): AsyncIterator<{ stream: "stdout" | "stderr"; data: Buffer }>;
    wait(options?: Listeners & { signal?: AbortSignal }): Promise<Result>;
    write(data: Data, options?: { eof?: boolean }): Promise<void>;
    closeStdin(): Promise<void>;
    signal(signal: number | NodeJS.Signals): Promise<void>;
    kill(): Promise<void>;
    resize(rows: number, columns: number): Promise<void>;
}

export class Files {
    read(path: string, options?: { user?: string }): Promise<Buffer>;
    readText(path: string, options?: { user?: string }): Promise<string>;
    stream(path: string, options?: { user?: string }): AsyncIterable<Buffer>;
    write(path: string, data: Data, options?: { mode?: number; user?: string }): Promise<number>;
    list(path: string, options?: { user?: string }): AsyncIterable<FileInfo>;
    stat(path: string, options?: { user?: string }): Promise<FileInfo>;
    exists(path: string, options?: { user?: string }): Promise<boolean>;
    mkdir(path: string, options?: { mode?: number; parents?: boolean; user?: string }): Promise<void>;
    remove(path: string, options?: { recursive?: boolean; user?: string }): Promise<void>;
    rename(from: string, to: string, options?: { user?: string }): Promise<void>;
    watch(path: string, options?: { recursive?: boolean; user?: string; signal?: AbortSignal }): Promise<AsyncIterable<FileChange>>;
}
