// What a call can fail with.
import { status } from "@grpc/grpc-js";

import { decode } from "./wire.js";

// Of another call, later: nothing has to change for it (docs/errors.md).
const RETRYABLE = new Set(["NOMEM", "RATE", "QUOTA", "QUEUE", "UNAVAILABLE"]);
// Where no Cloche answered.
const BY_STATUS = { UNAVAILABLE: "UNAVAILABLE", DEADLINE_EXCEEDED: "DEADLINE", CANCELLED: "CANCELLED", UNIMPLEMENTED: "UNIMPL" };

/** A call failed: `code` is its name in docs/errors.md, `retryAfter` seconds, where the service names them. */
export class ClocheError extends Error {
    constructor(code, message, retryAfter) {
        super(message);
        Object.assign(this, { name: "ClocheError", code, retryAfter });
    }

    get isRetryable() {
        return RETRYABLE.has(this.code);
    }
}

/** A command with check: true did not end with exit status 0; `result` is what it did. */
export class CommandFailed extends ClocheError {
    constructor(result) {
        const last = result.stderr.toString().trim().split("\n").at(-1);
        super("COMMAND", result.endedAs + (last && `: ${last}`));
        Object.assign(this, { name: "CommandFailed", result });
    }
}

/** What a function was called with, or it itself, threw; `error` says what, where it is known. */
export class CodeFailed extends ClocheError {
    constructor(answer) {
        const { error } = answer;
        super(answer.outcome.replace("CELL_OUTCOME_", ""), error ? `${error.name}: ${error.value}` : answer.message);
        Object.assign(this, { name: "CodeFailed", error, stdout: answer.stdout, stderr: answer.stderr });
    }
}

/** What gRPC throws is ours from here on. */
export function fromGrpc(err) {
    if (!("code" in err && "details" in err))
        return err;
    let code = BY_STATUS[status[err.code]] ?? status[err.code], retryAfter;
    const [packed] = err.metadata?.get("grpc-status-details-bin") ?? [];
    for (const { type_url, value } of packed ? decode("google.rpc.Status", packed).details : []) {
        if (type_url.endsWith("/google.rpc.ErrorInfo"))
            code = decode("google.rpc.ErrorInfo", value).reason;
        else if (type_url.endsWith("/google.rpc.RetryInfo")) {
            const { seconds, nanos } = decode("google.rpc.RetryInfo", value).retryDelay;
            retryAfter = seconds + nanos / 1e9;
        }
    }
    return new ClocheError(code, err.details, retryAfter);
}
