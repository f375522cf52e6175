"""A small MCP client, for what the unmodified ones never do: both eras, raw requests, broken ones."""
import http.client
import json
import socket
import threading
import urllib.parse

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
ACCEPT = "application/json, text/event-stream"


class Fields(dict):
    """Of an answer; one that is missing is missed with what was said instead."""

    def __init__(self, fields, said):
        super().__init__(fields)
        self.said = said

    def __missing__(self, key):
        raise KeyError(f"no '{key}' in the answer: {self.said}")


class Answer:
    def __init__(self, status, headers, body, notifications):
        self.status, self.headers, self.body, self.notifications = status, headers, body, notifications

    @property
    def result(self):
        return (self.body or {}).get("result")

    @property
    def error(self):
        return (self.body or {}).get("error") or {}

    @property
    def code(self):
        return self.error.get("code")

    @property
    def data(self):
        return Fields((self.result or {}).get("structuredContent") or {}, said=self.text or str(self.error))

    @property
    def failed(self):
        return bool((self.result or {}).get("isError"))

    @property
    def text(self):
        return "\n".join(c["text"] for c in (self.result or {}).get("content", []) if c["type"] == "text")


def read_events(response):
    """The JSON messages of an event stream."""
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


class Mcp:
    def __init__(self, url, key, era=MODERN, timeout=120):
        self.url, self.key, self.era, self.timeout = urllib.parse.urlsplit(url), key, era, timeout
        self.session, self.last_id, self.capabilities = None, 0, {}
        self.connection = None

    def connect(self):
        return http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=self.timeout)

    def raw(self, body, headers=None, method="POST", connection=None, drop=()):
        """One request; headers of None are left out."""
        own = {"Content-Type": "application/json", "Accept": ACCEPT, "Authorization": f"Bearer {self.key}"}
        if self.session:
            own["Mcp-Session-Id"] = self.session
        own.update(headers or {})
        own = {k: v for k, v in own.items() if v is not None and k not in drop}
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if connection is None:
            self.connection = connection = self.connection or self.connect()
        try:
            connection.request(method, self.url.path, body, own)
            response = connection.getresponse()
        except (http.client.HTTPException, ConnectionError):
            self.connection = None
            raise
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            messages = list(read_events(response))
            last = messages.pop() if messages and "id" in messages[-1] else None
            return Answer(response.status, response.headers, last, messages)
        text = response.read()
        return Answer(response.status, response.headers, json.loads(text) if text else None, [])

    def request(self, method, params=None, meta=None):
        self.last_id += 1
        params = dict(params or {})
        headers = {"MCP-Protocol-Version": self.era}
        if self.era == MODERN:
            params["_meta"] = {META + "protocolVersion": MODERN, META + "clientCapabilities": self.capabilities,
                               META + "clientInfo": {"name": "e2e", "version": "1"}, **(meta or {})}
            headers["Mcp-Method"] = method
            name = {"tools/call": "name", "resources/read": "uri"}.get(method) or ("taskId" if method.startswith("tasks/") else None)
            if name:
                headers["Mcp-Name"] = str(params.get(name, ""))
        elif meta:
            params["_meta"] = meta
        return {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}, headers

    def call(self, method, params=None, meta=None):
        return self.raw(*self.request(method, params, meta))

    def initialize(self):
        answer = self.call("initialize", {"protocolVersion": self.era, "capabilities": {},
                                          "clientInfo": {"name": "e2e", "version": "1"}})
        self.session = answer.headers.get("Mcp-Session-Id")
        self.raw({"jsonrpc": "2.0", "method": "notifications/initialized"}, {"MCP-Protocol-Version": self.era})
        return answer

    def tool(self, name, /, meta=None, **arguments):
        return self.call("tools/call", {"name": name, "arguments": arguments}, meta)

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None


class KeyProxy:
    """Puts a credential into what clients send that cannot be given one.  One request a connection,
    so that nothing but the head of each has to be looked at."""

    def __init__(self, url, key):
        target = urllib.parse.urlsplit(url)
        self.target, self.key = (target.hostname, target.port), key
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://localhost:{self.listener.getsockname()[1]}/mcp"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(65536)
            if not piece:
                client.close()
                return
            head += piece
        head, _, rest = head.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines += [b"Connection: close", b"Authorization: Bearer " + self.key.encode()]
        try:
            server = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
        threading.Thread(target=self._relay, args=(client, server), daemon=True).start()
        self._relay(server, client)

    @staticmethod
    def _relay(source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
