"""Sandboxes for code nobody has read yet.

    import cloche

    client = cloche.Client()                     # this host's service, or CLOCHE_ENDPOINT and CLOCHE_API_KEY
    print(client.run(["python3", "-c", "print(6*7)"]).text)

    with client.sandbox("python", ttl=600) as box:
        box.files.write("/tmp/data.csv", b"a,b\\n1,2\\n")
        print(box.code("import csv; rows = list(csv.reader(open('/tmp/data.csv'))); rows").text)
        print(box.run("wc -l < /tmp/data.csv", check=True).text)
"""
from ._async.client import AsyncClient, AsyncFunction
from ._async.sandbox import AsyncFiles, AsyncProcess, AsyncSandbox
from ._sync.client import Client, Function
from ._sync.sandbox import Files, Process, Sandbox
from .errors import CodeFailed, CommandFailed, Error
from .results import Cell, CodeError, CodeResult, FileChange, FileInfo, Result, SandboxInfo, Snapshot, Template

__all__ = ["AsyncClient", "AsyncFiles", "AsyncFunction", "AsyncProcess", "AsyncSandbox", "Cell", "Client", "CodeError", "CodeFailed", "CodeResult",
           "CommandFailed", "Error", "FileChange", "FileInfo", "Files", "Function", "Process", "Result", "Sandbox", "SandboxInfo", "Snapshot", "Template"]
