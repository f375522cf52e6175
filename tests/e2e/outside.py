"""A network of this process alone, with a small internet beside it in a namespace of its own.

`Outside()` moves the calling process, with all that it starts from then on, into a fresh network namespace that has
loopback and one link.  At its other end a child answers, in another namespace: for names (DNS), over TCP and UDP.
Nothing of it reaches the machine's own network, and it all ends with the process.
"""
import contextlib
import ctypes
import datetime
import hashlib
import http.server
import os
import signal
import socket
import socketserver
import ssl
import struct
import subprocess
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CLONE_NEWNET = 0x40000000
HOST = "198.51.100.1"       # this side of the link: the host that runs the guests (TEST-NET-2: not public)
PRIVATE = "198.51.100.10"   # of the other side, not public
RESOLVER = "198.51.100.53"
PUBLIC = "192.31.196.7"     # of the other side, and public (RFC 7535; nobody is asked for it out there)
OTHER = "192.31.196.8"      # public, too; no rule of a test names it but `public`
NAMES = {"web.test": [PUBLIC], "both.test": [PUBLIC, OTHER], "a.wild.test": [PUBLIC], "other.test": [OTHER],
         "private.test": [PRIVATE], "rebind.test": ["127.0.0.1"], "host.test": [HOST], "mixed.test": ["10.1.2.3", PUBLIC]}
BIG = hashlib.sha512(b"big").digest() * (8 << 14)  # 8 MiB


def new_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = BIG if self.path == "/big" else f"hello from {self.server.server_address[0]} to {self.client_address[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left > 0 and (piece := self.rfile.read(min(left, 65536))):
            digest.update(piece)
            left -= len(piece)
        body = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):  # not HTTPServer's, which asks for the host's own name
        socketserver.TCPServer.server_bind(self)


def tls_context(folder):
    """Of a server that is whoever it is asked for."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.utcnow()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "outside")])
    cert = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256()))
    path = folder / "tls.pem"
    path.write_bytes(cert.public_bytes(serialization.Encoding.PEM) +
                     key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


class Tls(socketserver.BaseRequestHandler):
    def handle(self):
        with contextlib.suppress(OSError):
            s = self.server.context.wrap_socket(self.request, server_side=True)
            s.sendall(b"tls for " + s.recv(100))


class TlsServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


def answer(query, asked):
    """To one DNS query; what was asked is written down."""
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += query[at] + 1
    qtype = struct.unpack(">H", query[at + 1:at + 3])[0]
    name = ".".join(labels).lower()
    asked.write(f"{name} {qtype}\n")
    asked.flush()
    addresses = NAMES.get(name, []) if qtype == 1 else []
    rows = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(a) for a in addresses)
    code = 0 if name in NAMES else 3
    return query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(addresses), 0, 0) + query[12:at + 5] + rows


def serve_datagrams(address, port, reply):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, port))
    while True:
        data, peer = s.recvfrom(65536)
        with contextlib.suppress(IndexError, UnicodeDecodeError, OSError):
            s.sendto(reply(data), peer)


class Outside:
    def __init__(self, folder):
        """`folder` gets the list of the names that reached the resolver."""
        self.asked_path, self.folder = folder / "asked", folder
        self.asked_path.touch()
        new_namespace()
        ready, told = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(ready[1], told[0])
        os.read(ready[0], 1)
        ip("link", "set", "lo", "up")
        ip("link", "add", "wan", "type", "veth", "peer", "name", "wan", "netns", str(self.pid))
        ip("address", "add", f"{HOST}/24", "dev", "wan")
        ip("link", "set", "wan", "up")
        ip("route", "add", "default", "dev", "wan")
        os.write(told[1], b"x")
        if os.read(ready[0], 1) != b"u":
            raise RuntimeError("the other side of the network did not come up")

    def _child(self, ready, told):
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the test
            new_namespace()
            os.write(ready, b"x")
            os.read(told, 1)
            ip("link", "set", "lo", "up")
            for address in (PRIVATE, RESOLVER):
                ip("address", "add", f"{address}/24", "dev", "wan")
            for address in (PUBLIC, OTHER):
                ip("address", "add", f"{address}/32", "dev", "wan")
            ip("link", "set", "wan", "up")
            ip("route", "add", "default", "dev", "wan")
            asked = open(self.asked_path, "a")
            for address in (PRIVATE, PUBLIC, OTHER):
                for port in (80, 8080):
                    threading.Thread(target=Server((address, port), Web).serve_forever, daemon=True).start()
                threading.Thread(target=serve_datagrams, args=(address, 7777, lambda d: d[::-1]), daemon=True).start()
            tls = TlsServer((PUBLIC, 443), Tls)
            tls.context = tls_context(self.folder)
            threading.Thread(target=tls.serve_forever, daemon=True).start()
            threading.Thread(target=serve_datagrams, args=(RESOLVER, 53, lambda d: answer(d, asked)), daemon=True).start()
            os.write(ready, b"u")
            signal.pause()
        finally:
            os._exit(1)

    def asked(self):
        return self.asked_path.read_text().splitlines()

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
