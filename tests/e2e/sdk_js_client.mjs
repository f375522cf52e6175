// Cloche's JavaScript package, used as its README says.  One JSON line on stdout: what was seen.
//
// usage: sdk_js_client.mjs all|follow|hello     (run by e2e_sdk.py; CLOCHE_* say where)
import { randomBytes } from "node:crypto";
import { createConnection } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, ClocheError } from "cloche";

const big = (n) => Buffer.alloc(n, "x");

/** [class, code, message] of what it throws, with the names of Python's package. */
async function thrown(call) {
    try {
        await call();
    } catch (err) {
        if (err instanceof ClocheError)
            return [err.name.replace("ClocheError", "Error"), err.code, err.message];
        throw err;
    }
    return null;
}

const collect = async (pages, of) => {
    const all = [];
    for await (const one of pages)
        all.push(of(one));
    return all;
};

async function jobs(client, out) {
    const heard = [];
    let r = await client.run("echo out; echo err >&2; exit 3", { onStdout: (data) => heard.push(data) });
    out.run = [r.outcome, r.exitCode, r.ok, r.text, r.stderr.toString(), r.endedAs, Buffer.concat(heard).toString(), r.wall > 0 && r.wall < 60];
    out.argv = (await client.run(["printf", "%s|", "a b", "$HOME"], { template: "base" })).text;
    out.surroundings = (await client.run("echo $X; pwd; id -un", { env: { X: "a b" }, cwd: "/tmp", user: "root" })).text;
    out.stdin = [(await client.run("sort", { stdin: "b\na\n" })).text, (await client.run("wc -c", { stdin: big(3_000_000) })).text.trim(),
        (await client.run("md5sum", { stdin: Readable.from([Buffer.from("fi"), Buffer.from("le")]) })).text.slice(0, 6),
        (await client.run("true", { stdin: big(3_000_000) })).ok];
    out["timed out"] = [(await client.run("sleep 60", { timeout: 0.5 })).outcome, (await client.run(["nothing-of-this-name"])).outcome];
    out.check = await thrown(() => client.run("echo why >&2; exit 4", { check: true }));
    out.network = (await thrown(() => client.run("true", { net: "example.org" }))).slice(0, 2);
    out.large = (await client.run("head -c 20000000 /dev/zero")).stdout.length;
    r = await client.run("true", { template: "nothing" });
    out["no template"] = [r.outcome, r.reason, r.ok];
    out.templates = (await collect(client.templates(), (t) => t.name)).sort();
}

async function commands(box, out) {
    let p = await box.start("cat; echo end; exit 5", { stdin: true });
    await p.write("one\n");
    await p.write(Buffer.from("two\n"), { eof: true });
    out.process = [(await collect(p, (piece) => piece.stream)).length > 0, (await p.wait()).text, (await box.process(p.id).wait()).exitCode];
    p = await box.start("trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.1; done");
    let first;
    for await (first of p)
        break;
    await p.signal("SIGTERM");
    out.signal = [first.stream === "stdout" && first.data.toString() === "ready\n", (await p.wait()).text, (await p.wait()).exitCode];
    p = await box.start("sleep 100");
    await p.kill();
    out.killed = [(await p.wait()).outcome, (await p.wait()).signal];
    p = await box.start("stty size; read x; stty size", { pty: [40, 100] });
    for await (first of p)
        break;
    await p.resize(50, 120);
    await p.write("\n");
    out.terminal = [first.data.toString().trim(), (await p.wait()).text.split("\r\n").at(-2)];
    out["stdin of a command"] = [(await box.run("wc -c", { stdin: big(2_000_000) })).text.trim(), (await box.run("exit 0", { stdin: big(2_000_000) })).ok];
}

async function files({ files: f }, out) {
    await f.mkdir("/tmp/dir/deep");
    const changes = await f.watch("/tmp/dir", { recursive: true });
    out.written = [await f.write("/tmp/dir/a", "text ü"), await f.write("/tmp/dir/large", Readable.from([randomBytes(3_000_000)]), { mode: 0o600 })];
    await f.rename("/tmp/dir/a", "/tmp/dir/b");
    out.watched = [];
    for await (const { kind, path } of changes) {
        out.watched.push([kind, path]);
        if (path === "b")
            break;
    }
    out.read = [await f.readText("/tmp/dir/b"), (await f.read("/tmp/dir/large")).length, (await f.stat("/tmp/dir/large")).mode & 0o777];
    out.listed = (await collect(f.list("/tmp/dir"), (i) => [i.name, i.kind, i.size])).sort();
    await f.remove("/tmp/dir", { recursive: true });
    out.gone = [await f.exists("/tmp/dir"), await f.exists("/tmp"), (await thrown(() => f.read("/tmp/dir/a"))).slice(0, 2)];
}

async function code(box, out) {
    await box.code("x = 41");
    const heard = [];
    let cell = await box.code("print('hello'); x + 1", { onStdout: (data) => heard.push(data) });
    out.cell = [cell.ok, cell.text, cell.stdout.toString(), Buffer.concat(heard).toString(), cell.context];
    cell = await box.code("1/0");
    out.error = [cell.outcome, cell.error.name, cell.error.value, cell.error.traceback.includes("ZeroDivisionError"), cell.text ?? null];
    const own = await box.createContext("python", { cwd: "/tmp", env: { E: "of the context" } });
    out.context = [(await box.code("import os; 'x' in globals(), os.getcwd(), os.environ['E']", { context: own })).text];
    out.bash = (await box.code("echo $((6*7))", { language: "bash" })).stdout.toString();
    setTimeout(() => box.interrupt(), 1000);
    out.interrupt = [(await box.code("import time; time.sleep(60)")).outcome, (await box.code("x")).text, await box.interrupt()];
    await box.restartContext();
    out.restarted = (await box.code("x")).error.name;
    out["too long"] = (await box.code("while True: pass", { timeout: 1 })).outcome;
}

const ECHO = ["python3", "-u", "-c", "import socket\ns = socket.create_server(('127.0.0.1', 7000))\nprint('up')\nwhile True:\n    c, _ = s.accept()\n" +
    "    n = 0\n    while d := c.recv(65536):\n        n += len(d)\n    c.sendall(b'%d bytes' % n)\n    c.close()"];
const allOf = async (stream) => Buffer.concat(await collect(stream, (piece) => piece)).toString();

async function ports(box, out) {
    const server = await box.start(ECHO);
    for await (const _ of server)
        break;
    const s = await box.connect(7000);
    s.end(big(3_000_000));
    out.connected = [await allOf(s)];
    const tunnel = await box.forward(7000), { port } = tunnel.address();
    for (const text of ["one", "three"]) {
        const t = createConnection({ port, host: "127.0.0.1", allowHalfOpen: true });
        t.end(text);
        out.connected.push(await allOf(t));
    }
    await server.kill();
    await server.wait();
    out.connected.push(await allOf(createConnection({ port, host: "127.0.0.1" })));
    tunnel.close();
    out["nobody listens"] = (await thrown(() => box.connect(7000))).slice(0, 2);
}

/** Who leaves in the middle leaves nothing behind. */
async function left(client, box, out) {
    for (const [name, run] of [["job", client.run.bind(client)], ["command", box.run.bind(box)]]) {
        const enough = new AbortController();
        await run("echo; exec sleep 1000", { onStdout: () => enough.abort(), timeout: 900, signal: enough.signal }).catch((err) => {
            out[`left ${name}`] = err.name === "AbortError";
        });
    }
    for (const end = Date.now() + 60_000; Date.now() < end && (await box.run(["pgrep", "-x", "sleep"])).ok;)
        await sleep(100);
    out["left nothing"] = !(await box.run(["pgrep", "-x", "sleep"])).ok;
    const spoiled = async function* () {
        yield "a";
        throw new RangeError("spoiled");
    };
    for (const run of [client.run.bind(client), box.run.bind(box)])
        await run("cat", { stdin: spoiled() }).then(() => { out["left nothing"] = "spoiled input is read"; },
            (err) => { out["left nothing"] &&= err.message === "spoiled"; });
}

async function life(client, box, out) {
    const info = await box.info();
    out.info = [info.id === box.id, info.template, info.state, info.labels, info.expires > info.created];
    out.found = (await collect(client.sandboxes({ labels: { of: "sdk" } }), (i) => i.id)).join() === box.id;
    await box.code("n = 7");
    await box.pause();
    out.rests = [(await (await client.getSandbox(box.id)).info()).state, await box.resume(), await box.resume(), (await box.code("n")).text];
    const copies = await box.fork(2);
    out.forked = [];
    for (const copy of copies)
        out.forked.push((await copy.code("n += 1; n")).text);
    out.forked.push((await box.code("n")).text);
    await Promise.all(copies.map((copy) => copy.kill()));
    const snapshot = await box.snapshot("kept", { labels: { of: "sdk" } });
    const other = await client.sandbox({ snapshot: "kept" });
    out.snapshot = [snapshot.name, snapshot.size > 0, (await other.code("n")).text,
        (await collect(client.snapshots({ labels: { of: "sdk" } }), (s) => s.id)).join() === snapshot.id];
    await other.kill();
    out["job of it"] = (await client.run("echo made", { snapshot: "kept" })).text;
    const { state, reason } = await other.info();
    out.ended = [state, reason];
    await client.deleteSnapshot("kept");
    await box.extend(900);
    out.url = (await box.url(8000, { ttl: 60, domain: "https://sandboxes.example.org" })).split("?")[0].replace(box.id.replace("_", "-"), "ID");
    out["url here"] = (await box.url(8000, { domain: "localhost:7780" })).endsWith(".localhost:7780/");
}

async function functions(client, out) {
    const f = await client.createFunction("mean", "import statistics\ndef mean(values, times=1):\n    return statistics.mean(values) * times\n" +
        "def wrong():\n    print('before')\n    raise ValueError('no')\n", { replace: true });
    out.function = [await f([[1, 2, 4.5]]), await f({ values: [1, 3], times: 2 }), await client.function("mean")([[5]]),
        await collect(client.snapshots(), (s) => s.entry)];
    out.raises = await thrown(() => f([], { entry: "wrong" }));
    out["not loaded"] = await thrown(() => client.createFunction("bad", "import nothing_of_this_name"));
    out["no function"] = (await thrown(() => client.function("never-made")([1]))).slice(0, 2);
    await client.deleteSnapshot("mean");
}

async function errors(client, out) {
    out.unknown = (await thrown(() => client.getSandbox("sbx_01h00000000000000000000000"))).slice(0, 2);
    out["wrong key"] = (await thrown(async () => (await Client.connect({ key: "clk_wrong" })).run("true"))).slice(0, 2);
    const endpoint = process.env.CLOCHE_ENDPOINT;
    delete process.env.CLOCHE_ENDPOINT;
    process.env.CLOCHE_RUN_DIR = "/nowhere";
    out["not here"] = await thrown(() => Client.connect());
    out.nobody = await thrown(() => Client.connect({ endpoint: "127.0.0.1:9", timeout: 1 }));
    out.mixed = (await thrown(() => Client.connect({ endpoint: "127.0.0.1:9,10.0.0.1:9" }))).slice(0, 2);
    out.plain = await thrown(() => Client.connect({ endpoint: "192.0.2.1:7443", ca: "/nowhere/ca.pem" }));
    process.env.CLOCHE_ENDPOINT = endpoint;
    const boxes = await Promise.all(Array.from({ length: 4 }, () => client.sandbox({ ttl: 60 })));
    await client.sandbox({ ttl: 60 }).catch((err) => { out.quota = [err.code, err.isRetryable]; });
    await Promise.all(boxes.map((box) => box.kill()));
}

async function all(client) {
    const out = {};
    await jobs(client, out);
    await functions(client, out);
    const box = await client.sandbox({ ttl: 600, labels: { of: "sdk" } });
    for (const part of [commands, files, code])
        await part(box, out);
    await ports(box, out);
    await left(client, box, out);
    await life(client, box, out);
    await box.kill();
    await errors(client, out);
    return out;
}

/** Output of a job and of a command, and a sandbox's cell before and after, while schedulers come and go. */
async function follow(client) {
    const count = "for i in $(seq 0 99); do echo $i; sleep 0.1; done; exit 9", whole = Array.from({ length: 100 }, (_, i) => `${i}\n`).join("");
    const box = await client.sandbox({ ttl: 600 });
    await box.code("x = 1");
    const both = [client.run(count), box.run(count)];
    await sleep(1000);
    console.log("running");
    const [job, of] = (await Promise.all(both)).map((r) => [r.text === whole, r.exitCode]);
    const after = (await box.code("x + 1")).text;
    await box.kill();
    return { job, command: of, after };
}

const hello = async (client) => ({ hello: (await client.run("echo hello")).text });

const client = await Client.connect({ timeout: Number(process.env.CONNECT_TIMEOUT ?? 60) });
console.log(JSON.stringify(await { all, follow, hello }[process.argv[2]](client)));
client.close();
