// Connections to programs that listen in a sandbox: it needs no network for them (docs/ports.md).
import { createServer } from "node:net";
import { Duplex } from "node:stream";

import { fromGrpc } from "./errors.js";

/** One call of PortService.Connect as a stream of bytes. */
class Connection extends Duplex {
    #call;

    constructor(call) {
        super({ allowHalfOpen: true });
        this.#call = call;
        call.on("data", ({ data, eof }) => {
            if (data.length && !this.push(data))
                call.pause();
            if (eof)
                this.push(null);
        });
        call.on("error", (err) => this.destroy(fromGrpc(err)));
        call.on("end", () => this.push(null));
    }

    _read() {
        this.#call.resume();
    }

    _write(data, _, done) {
        if (this.#call.write({ data }))
            return done();
        const go = () => {
            this.#call.off("drain", go).off("close", go);
            done();
        };
        this.#call.on("drain", go).on("close", go);
    }

    _final(done) {
        this.#call.write({ eof: true });
        this.#call.end();
        done();
    }

    _destroy(err, done) {
        this.#call.cancel();
        done(err);
    }
}

/** Resolves when the program's kernel took the connection. */
export function connect(service, sandboxId, port) {
    const call = service.connect();
    call.write({ sandboxId, port });
    return new Promise((resolve, reject) => {
        const fail = (err) => reject(fromGrpc(err));
        call.once("error", fail).once("data", () => {
            call.pause().off("error", fail);
            resolve(new Connection(call));
        });
    });
}

/** A server here that leads to a port there. */
export function forward(service, sandboxId, port, { host = "127.0.0.1", localPort = 0 } = {}) {
    const server = createServer({ allowHalfOpen: true }, (client) => {
        client.on("error", () => {});
        connect(service, sandboxId, port).then((there) => {
            there.on("error", () => client.destroy());
            client.on("close", () => there.destroy());
            client.pipe(there).pipe(client);
        }, () => client.destroy()); // as where nobody listens
    });
    return new Promise((resolve, reject) => server.once("error", reject).listen(localPort, host, () => resolve(server)));
}
