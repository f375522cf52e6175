"""The Python SDK `mcp`, unmodified, against the gateway: HTTP and stdio.  One JSON line on stdout.

usage: mcp_python_client.py URL KEY CLOCHE      (run by e2e_mcp_clients.py with the tools' venv)
"""
import asyncio
import json
import os
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def use(streams, out, name):
    async with ClientSession(streams[0], streams[1]) as session:
        hello = await session.initialize()
        tools = await session.list_tools()
        made = await session.call_tool("exec", {"command": "echo py > f; cat f"})
        again = await session.call_tool("exec", {"command": "cat f", "sandbox_id": made.structured_content["sandbox_id"]})
        failed = await session.call_tool("exec", {"command": "exit 4"})
        out[name] = {"version": hello.protocol_version, "tools": len(tools.tools), "stdout": made.structured_content["stdout"],
                     "again": again.structured_content["stdout"], "is_error": failed.is_error,
                     "exit_code": failed.structured_content["exit_code"]}


async def main(url, key, cloche):
    out = {}
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            await use(streams, out, "http")
    server = StdioServerParameters(command=cloche, args=["mcp", "--template", "base"],
                                   env={k: os.environ[k] for k in ("CLOCHE_ENDPOINT", "CLOCHE_API_KEY", "ASAN_OPTIONS")})
    async with stdio_client(server) as streams:
        await use(streams, out, "stdio")
    print(json.dumps(out))


asyncio.run(main(*sys.argv[1:4]))
