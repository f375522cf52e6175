#!/usr/bin/env python3
"""The token issuer's keys come over HTTPS: fetched, fetched again when a key is new, and never replaced by
what is no key set."""
import datetime
import http.server
import ipaddress
import ssl
import subprocess
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness import BUILD, Cluster, Suite, code_of, error_of, folder, only_in_ci, pb, until
from issuer import RULES, Issuer, key_set

suite = Suite("token_keys")
check, equal = suite.check, suite.equal
FOLDER = folder("token-keys")
first, second = Issuer("k1"), Issuer("k2")


def make_certificate(name, *others):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.utcnow()
    cert = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name)), *others]), False)
            .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    pem = cert.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (FOLDER / f"{name}.pem").write_bytes(pem)
    (FOLDER / f"{name}.both").write_bytes(private + pem)


class Server:
    """Serves whatever `answer` is: (status, headers, body)."""

    def __init__(self, certificate):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                status, headers, body = outer.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        self.asked, self.answer = 0, (200, {}, key_set(first).encode())
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FOLDER / f"{certificate}.both")
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.http.server_port}/keys?v=1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


make_certificate("127.0.0.1", x509.DNSName("localhost"))
make_certificate("127.0.0.2")
server = Server("127.0.0.1")


def works(c, issuer):
    return error_of(lambda: c.client(issuer.token()).tenants.GetUsage(pb.GetUsageRequest(), timeout=20)) is None


@suite.scenario
def fetched(c):
    c.tenant("acme")
    check("the keys are fetched", until(lambda: works(c, first), 30, 0.5))
    asked = server.asked
    check("… once, not for every token", all(works(c, first) for _ in range(20)) and server.asked == asked, (asked, server.asked))


@suite.scenario
def what_is_no_key_set_changes_nothing(c):
    c.tenant("acme")
    bad = (("a page that is no set", (200, {}, b"<html>")), ("a redirect", (302, {"Location": server.url}, b"")), ("endless keys", (200, {}, b" " * (300 << 10))))
    for name, answer in bad:
        server.answer = answer
        asked, logged = server.asked, len(c.scheduler.events("CONFIG_REFUSED"))
        # A new key id makes it look again.
        check(f"{name} is fetched and refused", until(lambda: not works(c, second) and server.asked > asked
                                                      and len(c.scheduler.events("CONFIG_REFUSED")) > logged, 60, 0.5),
              (asked, server.asked))
        check(f"… and the old keys hold: {name}", works(c, first))
    server.answer = (200, {}, key_set(first, second).encode())
    check("a new key is found by its first tokens", until(lambda: works(c, second), 60, 0.5))
    asked = server.asked
    for n in range(200):
        works(c, Issuer(f"invented-{n}"))
    check("invented key ids do not make it flood the issuer", server.asked - asked <= 3, server.asked - asked)


@suite.scenario
def only_who_it_should_be(c):
    other = Server("127.0.0.2")
    d = Cluster("token_keys_other", workers=0, templates="",
                scheduler_args=(*RULES, "--token-keys", other.url, "--token-keys-ca", FOLDER / "127.0.0.2.pem"))
    d.start()
    d.tenant("acme")
    check("a certificate for another name is refused", until(lambda: d.scheduler.events("CONFIG_REFUSED"), 30, 0.5))
    err = error_of(lambda: d.client(first.token()).tenants.GetUsage(pb.GetUsageRequest(), timeout=20))
    equal("without keys a token is UNAVAILABLE", code_of(err), "UNAVAILABLE")
    check("… and that server saw no request", other.asked == 0, other.asked)
    suite.close(d)

    def refusal(url):
        argv = [BUILD / "cloche-scheduler", *RULES, "--token-keys", url, "--pepper-file", FOLDER / "pepper", "--redis", f"unix:{FOLDER}/none",
                "--listen", f"unix:{FOLDER}/api.sock", "--worker-listen", f"unix:{FOLDER}/w.sock", "--audit-socket", FOLDER / "a.sock"]
        return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60)
    for url, word in (("http://as.test/keys", "use https"), ("ftp://as.test/keys", "use https"), ("https:///keys", "no URL")):
        done = refusal(url)
        check(f"{url} is refused at the start", done.returncode != 0 and word in done.stderr, done)


if __name__ == "__main__":
    only_in_ci(40)
    suite.main(templates="base", scheduler_args=(*RULES, "--token-keys", server.url.replace("127.0.0.1", "localhost"),
                                                 "--token-keys-ca", FOLDER / "127.0.0.1.pem"))
