export { Client } from "./client.js";
export { ClocheError, CodeFailed, CommandFailed } from "./errors.js";
export { Cell, CodeResult, Result } from "./results.js";
export { Files, Process, Sandbox } from "./sandbox.js";
