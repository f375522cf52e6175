// Where the service is and who asks, found as `cloche` finds it (docs/install.md, cli/client.h): CLOCHE_ENDPOINT or RUN/api.sock,
// CLOCHE_API_KEY, CLOCHE_KEY_FILE or STATE/admin.key; TLS with CLOCHE_CA, and to other hosts always, unless CLOCHE_INSECURE=1.
import { accessSync, constants, existsSync, lstatSync, readFileSync } from "node:fs";
import { isIP } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { env, getuid } from "node:process";

import { Client as Channel, credentials } from "@grpc/grpc-js";

import { ClocheError } from "./errors.js";

// What would be done twice if it were asked again after its answer was lost.  All else reads, ends what has ended, or has a key by
// which the service knows it again.
const ONCE = {
    ExecService: ["Start", "Signal", "WriteStdin"], JobService: ["Control", "WriteStdin"], FileService: ["Write", "Rename"],
    CodeService: ["CreateContext", "RunCode", "RestartContext"], FunctionService: ["Create", "Call"], PortService: ["Connect"],
};
const AGAIN = { maxAttempts: 5, initialBackoff: "0.1s", maxBackoff: "1s", backoffMultiplier: 2, retryableStatusCodes: ["UNAVAILABLE"] };

// To live through a takeover: ask again what was cut off, and ask the silent whether they are there (docs/standby.md).
const OPTIONS = {
    "grpc.service_config": JSON.stringify({ loadBalancingConfig: [], methodConfig: [
        { name: Object.entries(ONCE).flatMap(([service, methods]) => methods.map((method) => ({ service: `cloche.v1.${service}`, method }))) },
        { name: [{}], retryPolicy: AGAIN }] }),
    "grpc.enable_retries": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
    "grpc.keepalive_time_ms": 20000,
    "grpc.keepalive_timeout_ms": 5000,
    "grpc.max_receive_message_length": 64 << 20,
    "grpc.max_send_message_length": 64 << 20,
};

/** As cli/paths.c. */
function stateFolder() {
    if (env.CLOCHE_STATE_DIR)
        return env.CLOCHE_STATE_DIR;
    if (getuid() === 0)
        return "/var/lib/cloche";
    return env.XDG_STATE_HOME ? join(env.XDG_STATE_HOME, "cloche") : join(homedir(), ".local/state/cloche");
}

function isWritable(path) {
    try {
        accessSync(path, constants.W_OK);
        return true;
    } catch {
        return false;
    }
}

/** As cli/paths.c: one in /tmp may be anybody's, and who owns it would be told the key. */
function runFolder() {
    if (env.CLOCHE_RUN_DIR)
        return env.CLOCHE_RUN_DIR;
    if (getuid() === 0)
        return "/run/cloche";
    if (env.XDG_RUNTIME_DIR && isWritable(env.XDG_RUNTIME_DIR))
        return join(env.XDG_RUNTIME_DIR, "cloche");
    const path = `/tmp/cloche-${getuid()}`;
    if (existsSync(path) && lstatSync(path).uid !== getuid())
        throw new ClocheError("DENIED", `${path} belongs to somebody else\nset CLOCHE_RUN_DIR, or XDG_RUNTIME_DIR`);
    return path;
}

function findEndpoint() {
    if (env.CLOCHE_ENDPOINT)
        return env.CLOCHE_ENDPOINT;
    const socket = join(runFolder(), "api.sock");
    if (!existsSync(socket))
        throw new ClocheError("UNAVAILABLE", `Cloche is not running here (no ${socket})\nstart it with \`cloche up\`, or set CLOCHE_ENDPOINT`);
    return `unix:${socket}`;
}

function findKey() {
    if (env.CLOCHE_API_KEY)
        return env.CLOCHE_API_KEY;
    try {
        return readFileSync(env.CLOCHE_KEY_FILE || join(stateFolder(), "admin.key"), "utf8").trim();
    } catch (err) {
        throw new ClocheError("UNAUTH", `no API key: ${err.message}\nset CLOCHE_API_KEY or CLOCHE_KEY_FILE`);
    }
}

const hostOf = (address) => address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");

/** On this host, where nobody listens in between. */
function isHere(address) {
    return address.startsWith("unix:") || hostOf(address) === "localhost" || hostOf(address) === "::1" || (isIP(hostOf(address)) === 4 && hostOf(address).startsWith("127."));
}

/** What gRPC calls it.  Of several schedulers one leads, and gRPC tries a list in its order, but only one of IP addresses. */
function targetOf(endpoint) {
    const versions = new Set(endpoint.split(",").map((a) => isIP(hostOf(a))));
    if (!endpoint.includes(","))
        return endpoint;
    if (versions.size !== 1 || versions.has(0))
        throw new ClocheError("INVALID", `endpoint ${endpoint}: gRPC takes a list of IP addresses alone, of one version\n` +
            "give those, or one name that has all of them");
    return `ipv${[...versions][0]}:${endpoint}`;
}

/** An API key never goes in plain text to another host unless one says so. */
function credentialsOf(endpoint, ca, insecure) {
    const addresses = endpoint.split(","), here = new Set(addresses.map(isHere));
    if (here.size > 1)
        throw new ClocheError("INVALID", `endpoint ${endpoint}: some are on this host and some are not: some with TLS and some without are not mixed\n` +
            "name this host as the other ones reach it, too");
    if (insecure || addresses.every((a) => a.startsWith("unix:")) || (here.has(true) && !ca))
        return credentials.createInsecure();
    try {
        return credentials.createSsl(readFileSync(ca || join(stateFolder(), "tls/ca.pem")));
    } catch (err) {
        throw new ClocheError("INVALID", `the CA of ${endpoint}: ${err.message}\nset CLOCHE_CA to the CA file that \`cloche status\` names on the server`);
    }
}

/** A channel that is up, and the headers of every call. */
export async function connect({ endpoint, key, ca, insecure, timeout = 20 }) {
    endpoint ||= findEndpoint();
    key ||= findKey();
    ca ||= env.CLOCHE_CA;
    const channel = new Channel(targetOf(endpoint), credentialsOf(endpoint, ca, insecure || env.CLOCHE_INSECURE === "1"), OPTIONS);
    await new Promise((resolve, reject) => channel.waitForReady(Date.now() + timeout * 1000, (err) => {
        if (!err)
            return resolve();
        channel.close();
        reject(new ClocheError("UNAVAILABLE", `no Cloche answers at ${endpoint}${ca ? ` with the certificate of ${ca}` : ""}\n\`cloche status\` on its host shows what is down`));
    }));
    return [channel, { authorization: `Bearer ${key}`, ...(env.TRACEPARENT && { traceparent: env.TRACEPARENT }) }];
}

/** Of the gateway, for addresses of ports: CLOCHE_PORTS_DOMAIN, or that of this host's. */
export function portsDomain() {
    if (env.CLOCHE_PORTS_DOMAIN)
        return env.CLOCHE_PORTS_DOMAIN;
    try {
        return `http://localhost:${JSON.parse(readFileSync(join(runFolder(), "supervisor.json"), "utf8")).mcp.split(":").at(-1)}`;
    } catch {
        throw new ClocheError("INVALID", "no gateway runs on this host\ngive domain (or CLOCHE_PORTS_DOMAIN): the gateway's ports-domain");
    }
}
