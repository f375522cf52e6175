// Messages and services of cloche.v1, from the .proto files that are packed with this package, or those of its repository.
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Metadata } from "@grpc/grpc-js";
import protobuf from "protobufjs";

const PACKAGE = "cloche.v1";
const TIMEOUT = 60; // s of a call that answers once, as of `cloche`

function load() {
    const folder = ["../proto/", "../../../proto/"].map((f) => new URL(f, import.meta.url)).find((f) => existsSync(new URL("cloche/v1/", f)));
    const root = new protobuf.Root();
    root.resolvePath = (_, path) => path.startsWith("google/") ? path : fileURLToPath(new URL(path, folder));
    const services = readdirSync(new URL("cloche/v1/", folder)).filter((f) => f.endsWith(".proto")).map((f) => `cloche/v1/${f}`);
    root.loadSync(services);
    const status = existsSync(new URL("status.proto", folder)) ? folder : new URL("../../", import.meta.url);
    root.loadSync(fileURLToPath(new URL("status.proto", status)));
    return root.resolveAll();
}

const root = load();
// Numbers are exact to 2^53, which is 256 ns of a time since 1970 and more than any size.
const FORM = { longs: Number, enums: String, defaults: true, arrays: true, oneofs: true };

export function decode(name, bytes) {
    const type = root.lookupType(name);
    return type.toObject(type.decode(bytes), FORM);
}

/**
 * The methods of a service by their names, first letter small.  One that answers once gives a promise, one that answers with a stream
 * gRPC's stream; one that takes a stream takes an async iterable, unless it gives one, too.
 */
export class Service {
    constructor(client, headers, name, toError) {
        for (const method of root.lookupService(`${PACKAGE}.${name}`).methodsArray) {
            const { resolvedRequestType: request, resolvedResponseType: response } = method;
            const how = [`/${PACKAGE}.${name}/${method.name}`, (m) => request.encode(request.fromObject(m)).finish(),
                (bytes) => response.toObject(response.decode(bytes), FORM)];
            this[method.name[0].toLowerCase() + method.name.slice(1)] =
                method.responseStream && method.requestStream ? () => client.makeBidiStreamRequest(...how, metadata(headers)) :
                method.responseStream ? (m) => client.makeServerStreamRequest(...how, m, metadata(headers)) :
                method.requestStream ? (messages) => write(client, how, headers, messages, toError) :
                (m, timeout = TIMEOUT) => new Promise((resolve, reject) => client.makeUnaryRequest(...how, m, metadata(headers),
                    { deadline: Date.now() + timeout * 1000 }, (err, answer) => err ? reject(toError(err)) : resolve(answer)));
        }
    }
}

function metadata(headers) {
    const made = new Metadata({ waitForReady: true });
    for (const [name, value] of Object.entries(headers))
        made.set(name, value);
    return made;
}

function write(client, how, headers, messages, toError) {
    return new Promise((resolve, reject) => {
        const call = client.makeClientStreamRequest(...how, metadata(headers), (err, answer) => err ? reject(toError(err)) : resolve(answer));
        const room = () => new Promise((go) => { call.once("drain", go); call.once("status", go); });
        (async () => {
            for await (const message of messages)
                if (!call.write(message))
                    await room();
            call.end();
        })().catch((err) => { call.cancel(); reject(err); });
    });
}
