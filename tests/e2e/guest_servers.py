"""Runs inside of a guest: servers of several manners, on ports that e2e_ports.py knows.  Says "ready" when all listen."""
import base64
import hashlib
import http.server
import socket
import socketserver
import struct
import sys
import threading
import time


def read_all(conn):
    while data := conn.recv(65536):
        yield data


def echo(conn):
    """What comes goes back; after the end of that, its length."""
    n = 0
    for data in read_all(conn):
        conn.sendall(data)
        n += len(data)
    conn.sendall(b"<%d>" % n)


def digest(conn):
    """The SHA-256 of all that came, after its end."""
    h = hashlib.sha256()
    for data in read_all(conn):
        h.update(data)
    conn.sendall(h.hexdigest().encode())


def source(conn):
    """As many bytes as the first line says, and then their SHA-256."""
    n, h = int(conn.makefile().readline()), hashlib.sha256()
    block = bytes(range(256)) * 256
    while n > 0:
        h.update(block[:n])
        conn.sendall(block[:n])
        n -= min(n, len(block))
    conn.sendall(h.hexdigest().encode())


def first_word(conn):
    """Says its end at once, and then listens: the digest goes to a file."""
    conn.sendall(b"bye")
    conn.shutdown(socket.SHUT_WR)
    with open("/tmp/after-bye", "wb") as out:
        for data in read_all(conn):
            out.write(data)


def reset(conn):
    """A reset, in the middle of an answer."""
    conn.recv(1)
    conn.sendall(b"half")
    time.sleep(0.3)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def watch(conn):
    """Writes down how its client left."""
    conn.sendall(b"here")
    try:
        how = "end" if conn.recv(1) == b"" else "bytes"
    except ConnectionResetError:
        how = "reset"
    with open("/tmp/left", "w") as out:
        out.write(how)


MANNERS = {7000: echo, 7001: digest, 7002: source, 7003: first_word, 7004: reset, 7005: watch}


def serve(port, manner):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            manner(self.request)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads, request_queue_size = True, True, 64
    threading.Thread(target=Server(("127.0.0.1", port), Handler).serve_forever, daemon=True).start()


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "mine=1; Domain=localhost; Path=/")
        self.end_headers()
        self.wfile.write(body)

    def web_socket(self):
        """RFC 6455: every short frame comes back."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while len(head := self.rfile.read(6)) == 6:
            data = bytes(b ^ head[2 + i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(data)]) + data)
        self.close_connection = True

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.web_socket()
        self.answer(f"{self.path}\n{self.headers}".encode())

    def do_POST(self):
        n = int(self.headers.get("Content-Length", 0))
        self.answer(hashlib.sha256(self.rfile.read(n)).hexdigest().encode())

    def log_message(self, *args):
        pass


class Pages(http.server.ThreadingHTTPServer):
    request_queue_size = 64


for number, how in MANNERS.items():
    serve(number, how)
threading.Thread(target=Pages(("127.0.0.1", 8000), Page).serve_forever, daemon=True).start()
print("ready", flush=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 3600)
