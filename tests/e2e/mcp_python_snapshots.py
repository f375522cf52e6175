"""Snapshots by the Python SDK `mcp`, unmodified: sessions of one key, by HTTP and stdio, and one of another.  One JSON line on stdout.

usage: mcp_python_snapshots.py URL KEY OTHER CLOCHE      (run by e2e_mcp_clients.py with the tools' venv)
"""
import asyncio
import contextlib
import json
import os
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@contextlib.asynccontextmanager
async def session(streams):
    async with streams as (read, write, *_), ClientSession(read, write) as s:
        await s.initialize()
        yield s


@contextlib.asynccontextmanager
async def over_http(url, key):
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        async with session(streamable_http_client(url, http_client=http)) as s:
            yield s


async def data(s, name, /, **arguments):
    result = await s.call_tool(name, arguments)
    if result.is_error:
        raise RuntimeError(f"{name}: {result.content}")
    return result.structured_content


async def refusal(s, name, /, **arguments):
    result = await s.call_tool(name, arguments)
    return {"is_error": result.is_error, "text": result.content[0].text}


async def snapshots(s):
    return {x["snapshot_id"]: x.get("name") for x in (await data(s, "snapshot_list"))["snapshots"]}


async def begin(s):
    made = await data(s, "sandbox_create", snapshot="ready")
    box = made["sandbox_id"]
    note = await data(s, "file_read", sandbox_id=box, path="note")
    x = await data(s, "run_code", sandbox_id=box, code="x")
    await data(s, "sandbox_kill", sandbox_id=box)
    return {"listed": await snapshots(s), "forked_from": made["forked_from"], "file": note["content"], "x": x["result"]}


async def main(url, key, other, cloche):
    out = {}
    async with over_http(url, key) as s:
        box = (await data(s, "sandbox_create", template="python"))["sandbox_id"]
        await data(s, "file_write", sandbox_id=box, path="note", content="kept")
        await data(s, "run_code", sandbox_id=box, code="x = 41")
        out["kept"] = await data(s, "snapshot_create", sandbox_id=box, name="ready")
        out["ended"] = (await data(s, "sandbox_kill", sandbox_id=box))["killed"]
    async with over_http(url, key) as s:
        out["http"] = await begin(s)
    server = StdioServerParameters(command=cloche, args=["mcp"], env={k: os.environ[k] for k in ("CLOCHE_ENDPOINT", "CLOCHE_API_KEY", "ASAN_OPTIONS")})
    async with session(stdio_client(server)) as s:
        out["stdio"] = await begin(s)
    async with over_http(url, other) as s:
        out["stranger"] = {"listed": list(await snapshots(s)), **await refusal(s, "sandbox_create", snapshot="ready")}
    async with over_http(url, key) as s:
        out["both"] = await refusal(s, "sandbox_create", template="python", snapshot="ready")
        out["deleted"] = await data(s, "snapshot_delete", snapshot="ready")
        out["late"] = await refusal(s, "sandbox_create", snapshot="ready")
    print(json.dumps(out))


asyncio.run(main(*sys.argv[1:5]))
