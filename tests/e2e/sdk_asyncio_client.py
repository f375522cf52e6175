"""Cloche's Python package in an event loop.  One JSON line on stdout: what was seen; the names are those of sdk_python_client.py.

usage: sdk_asyncio_client.py all|follow|hello     (run by e2e_sdk.py; CLOCHE_* say where)
"""
import asyncio
import io
import json
import os
import sys
import time

import cloche

ECHO = ["python3", "-u", "-c", "import socket\ns = socket.create_server(('127.0.0.1', 7000))\nprint('up')\nwhile True:\n    c, _ = s.accept()\n"
        "    n = 0\n    while d := c.recv(65536):\n        n += len(d)\n    c.sendall(b'%d bytes' % n)\n    c.close()"]


async def raised(call):
    """[class, code, message] of what it raises."""
    try:
        await call
    except cloche.Error as err:
        return [type(err).__name__, err.code, err.message]
    return None


async def jobs(client, out):
    heard = []
    r = await client.run("echo out; echo err >&2; exit 3", on_stdout=heard.append)
    out["run"] = [r.outcome, r.exit_code, r.ok, r.text, r.stderr.decode(), r.ended_as, b"".join(heard).decode(), 0 < r.wall < 60]

    async def letters():
        yield b"b\n"
        yield "a\n"
    runs = await asyncio.gather(client.run("sort", stdin=letters()), client.run("wc -c", stdin=b"x" * 3_000_000),
                                client.run("md5sum", stdin=io.BytesIO(b"file")), client.run("true", stdin=b"x" * 3_000_000))
    out["stdin"] = [runs[0].text, runs[1].text.strip(), runs[2].text[:6], runs[3].ok]
    out["check"] = await raised(client.run("echo why >&2; exit 4", check=True))
    out["templates"] = sorted([t.name async for t in client.templates()])


async def commands(box, out):
    p = await box.start("cat; echo end; exit 5", stdin=True)
    await p.write("one\n")
    await p.write(b"two\n", eof=True)
    out["process"] = [[k async for k, _ in p] != [], (await p.wait()).text, (await box.process(p.id).wait()).exit_code]
    p = await box.start("trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.1; done")
    pieces = p.__aiter__()
    first = await pieces.__anext__()
    await pieces.aclose()
    await p.signal(15)
    out["signal"] = [list(first) == ["stdout", b"ready\n"], (await p.wait()).text, (await p.wait()).exit_code]


async def files(box, out):
    f = box.files
    await f.mkdir("/tmp/dir/deep")
    changes = await f.watch("/tmp/dir", recursive=True)
    out["written"] = [await f.write("/tmp/dir/a", "text ü"), await f.write("/tmp/dir/large", io.BytesIO(os.urandom(3_000_000)), mode=0o600)]
    await f.rename("/tmp/dir/a", "/tmp/dir/b")
    out["watched"] = []
    async for change in changes:
        out["watched"].append([change.kind, change.path])
        if change.path == "b":
            break
    await changes.aclose()
    out["read"] = [await f.read_text("/tmp/dir/b"), len(await f.read("/tmp/dir/large")), (await f.stat("/tmp/dir/large")).mode & 0o777]
    out["listed"] = sorted([[i.name, i.kind, i.size] async for i in f.list("/tmp/dir")])
    await f.remove("/tmp/dir", recursive=True)
    out["gone"] = [await f.exists("/tmp/dir"), await f.exists("/tmp"), (await raised(f.read("/tmp/dir/a")))[:2]]


async def code(box, out):
    await box.code("x = 41")
    heard = []
    cell = await box.code("print('hello'); x + 1", on_stdout=heard.append)
    out["cell"] = [cell.ok, cell.text, cell.stdout.decode(), b"".join(heard).decode(), cell.context]
    running = asyncio.ensure_future(box.code("import time; time.sleep(60)"))
    await asyncio.sleep(1)
    await box.interrupt()
    out["interrupt"] = [(await running).outcome, (await box.code("x")).text, await box.interrupt()]


async def ports(box, out):
    server = await box.start(ECHO)
    async for _ in server:
        break
    reader, writer = await box.connect(7000)
    writer.write(b"x" * 3_000_000)
    writer.write_eof()
    out["connected"] = [(await reader.read()).decode()]
    async with await box.forward(7000) as tunnel:
        for text in (b"one", b"three", None):
            if text is None:
                await server.kill()
                await server.wait()
            reader, writer = await asyncio.open_connection(*tunnel.address)
            if text:
                writer.write(text)
                writer.write_eof()
            out["connected"].append((await reader.read()).decode())
            writer.close()
    out["nobody listens"] = (await raised(box.connect(7000)))[:2]


async def left(client, box, out):
    """Who leaves in the middle leaves nothing behind."""
    for name, run in (("job", client.run), ("command", box.run)):
        begun = asyncio.Event()
        task = asyncio.ensure_future(run("echo; exec sleep 1000", on_stdout=lambda _: begun.set(), timeout=900))
        await begun.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            out[f"left {name}"] = True
    end = time.monotonic() + 60
    while (await box.run(["pgrep", "-x", "sleep"])).ok and time.monotonic() < end:
        await asyncio.sleep(0.1)
    out["left nothing"] = not (await box.run(["pgrep", "-x", "sleep"])).ok

    async def spoiled():
        yield b"a"
        raise OSError("spoiled")
    for run in (client.run, box.run):
        try:
            await run("cat", stdin=spoiled())
            out["left nothing"] = "spoiled input is read"
        except OSError as err:
            out["left nothing"] &= str(err) == "spoiled"


async def life(client, box, out):
    out["found"] = [i.id async for i in client.sandboxes(labels={"of": "sdk"})] == [box.id]
    await box.code("n = 7")
    await box.pause()
    out["rests"] = [(await (await client.get_sandbox(box.id)).info()).state, await box.resume(), await box.resume(), (await box.code("n")).text]
    copies = await box.fork(2)
    out["forked"] = [(await c.code("n += 1; n")).text for c in copies] + [(await box.code("n")).text]
    for c in copies:
        await c.kill()
    f = await client.create_function("mean", "def mean(values, times=1):\n    return sum(values) / len(values) * times\n", replace=True)
    out["function"] = [await f([1, 2, 4.5]), await f(values=[1, 3], times=2), await client.function("mean")([5]), [s.entry async for s in client.snapshots()]]
    await client.delete_snapshot("mean")


async def everything(client):
    out = {}
    await jobs(client, out)
    async with await client.sandbox(ttl=600, labels={"of": "sdk"}) as box:
        for part in (commands, files, code, ports):
            await part(box, out)
        await left(client, box, out)
        await life(client, box, out)
    return out


async def follow(client):
    """Output of a job and of a command, and a sandbox's cell before and after, while schedulers come and go."""
    count, whole = "for i in $(seq 0 99); do echo $i; sleep 0.1; done; exit 9", "".join(f"{i}\n" for i in range(100))
    box = await client.sandbox(ttl=600)
    await box.code("x = 1")
    both = asyncio.gather(client.run(count), box.run(count))
    await asyncio.sleep(1)
    print("running", flush=True)
    job, command = ([r.text == whole, r.exit_code] for r in await both)
    after = (await box.code("x + 1")).text
    await box.kill()
    return {"job": job, "command": command, "after": after}


async def hello(client):
    return {"hello": (await client.run("echo hello")).text}


async def main(what):
    async with cloche.AsyncClient(timeout=float(os.environ.get("CONNECT_TIMEOUT", "60"))) as client:
        print(json.dumps(await what(client)), flush=True)


asyncio.run(main({"all": everything, "follow": follow, "hello": hello}[sys.argv[1]]))
