// What calls answer with.  All of it is plain data; times are seconds, sizes bytes.
import { nameOf } from "./stream.js";

const timeOf = (time) => time ? new Date(time.unixNs / 1e6) : undefined;
const labelsOf = (labels) => Object.fromEntries(labels.map(({ key, value }) => [key, value]));

export const outcomeOf = (value) => nameOf(value, "OUTCOME_"), cellOutcomeOf = (value) => nameOf(value, "CELL_OUTCOME_");

/** What became of a command. */
export class Result {
    constructor(message, output) {
        const { exitCode, signal, message: text, usage } = message;
        Object.assign(this, {
            outcome: outcomeOf(message.outcome), exitCode, signal, reason: nameOf(message.reason, "REASON_"), message: text,
            cpu: (usage?.cpuNs ?? 0) / 1e9, wall: (usage?.wallNs ?? 0) / 1e9, peakMemory: usage?.peakMemoryBytes ?? 0,
            stdout: output.stdout, stderr: output.stderr, truncated: Boolean(message.stdout?.truncated || message.stderr?.truncated),
        });
    }

    get ok() {
        return this.outcome === "EXITED" && this.exitCode === 0;
    }

    /** Of stdout. */
    get text() {
        return this.stdout.toString();
    }

    /** In words. */
    get endedAs() {
        if (this.outcome === "EXITED")
            return `exit status ${this.exitCode}`;
        const what = this.outcome === "SIGNALED" ? `signal ${this.signal}` : this.outcome;
        return this.message ? `${what} (${this.message})` : what;
    }
}

/** One thing that a cell showed, in each form that it has, by MIME type. */
export class CodeResult {
    constructor({ data, isMainResult }) {
        this.data = Object.fromEntries(data.map((d) => [d.mimeType, d.data]));
        this.isMain = isMainResult;
    }

    get text() {
        return this.data["text/plain"]?.toString() ?? "";
    }
}

/** What became of code. */
export class Cell {
    constructor(end, { context, results, error, output }) {
        Object.assign(this, {
            outcome: cellOutcomeOf(end.outcome), message: end.message, executionCount: end.executionCount, wall: end.wallNs / 1e9,
            context, results, error, stdout: output.stdout, stderr: output.stderr,
        });
    }

    get ok() {
        return this.outcome === "OK";
    }

    /** What its last line is worth, as text; undefined when it is worth nothing. */
    get text() {
        return this.results.find((r) => r.isMain)?.text;
    }
}

export const sandboxInfo = (m) => ({
    id: m.id, template: m.template, state: nameOf(m.state, "UNIT_STATE_"), vcpus: m.resources?.vcpus ?? 0, memoryMib: m.resources?.memoryMib ?? 0,
    labels: labelsOf(m.labels), created: timeOf(m.created), expires: timeOf(m.expires), reason: nameOf(m.reason, "REASON_"),
    worker: m.workerId, driver: m.driver,
});
export const snapshotInfo = (m) => ({
    id: m.id, name: m.name, template: m.template, sandbox: m.sandboxId, labels: labelsOf(m.labels), created: timeOf(m.created), size: m.imageBytes,
    entry: m.function?.entry ?? "",
});
export const fileInfo = (m) => ({
    name: m.name, kind: nameOf(m.type, "FILE_TYPE_"), size: m.size, mode: m.mode, modified: timeOf(m.modified), linkTarget: m.linkTarget,
});
export const templateInfo = ({ name, driver, warm, workers }) => ({ name, driver, warm, workers });
