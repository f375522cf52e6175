#!/usr/bin/python3
"""The real cloche-net with a guest that has Linux's own network and glibc's resolver: a tap device in a namespace.

usage: kernel_guest.py CLOCHE_NET
Exit 0 when all passed, 1 otherwise, 77 when this machine cannot run it.
"""
import errno
import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from world import (CLONE_NEWNET, CLOSE, CLOSED, DENIED, DNS, FRAME_MAX, HOST, MTU, PATIENCE_S, PUBLIC, SERVER, TOTALS, UDP, Guest, World, grant, ip, libc,
                   rule, skip)

CLONE_NEWNS, TUNSETIFF, IFF_TAP, IFF_NO_PI, MIB = 0x20000, 0x400454CA, 2, 0x1000, 1 << 20
MUCH = 8 * MIB


def pump(take, give):
    while data := take():
        give(data)
    os._exit(3)


def open_tap():
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
    ip("link", "set", "eth0", "address", "02:c1:0c:4e:00:02")
    ip("addr", "add", "192.0.0.2/29", "dev", "eth0")
    ip("link", "set", "lo", "up")
    ip("link", "set", "eth0", "mtu", str(MTU), "up")
    ip("route", "add", "default", "via", "192.0.0.1")
    return tap


def use_resolver():
    with tempfile.NamedTemporaryFile("w", delete=False) as f:
        f.write("nameserver 192.0.0.3\n")
    os.chmod(f.name, 0o644)
    for words in (("--make-rprivate", "/"), ("--bind", f.name, "/etc/resolv.conf")):
        subprocess.run(("mount",) + words, check=True)
    os.unlink(f.name)


def fails_with(number, do):
    try:
        do()
    except OSError as e:
        assert e.errno == number, e
        return
    raise AssertionError("it did not fail with " + errno.errorcode[number])


def echo_much(to):
    with socket.create_connection((to, 443), PATIENCE_S) as s:
        def send():
            s.sendall(b"z" * MUCH)
            s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send, daemon=True).start()
        got = 0
        while data := s.recv(65536):
            got += len(data)
        assert got == MUCH, got


def send_datagrams(to, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        s.connect((to, port))
        s.send(b"x" * 1400)
        assert len(s.recv(2000)) == 1400


def be_guest(wire):
    """In the guest's namespaces, until an exception or the end."""
    if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) < 0:
        os._exit(77)
    tap = open_tap()
    use_resolver()
    threading.Thread(target=pump, args=(lambda: os.read(tap, FRAME_MAX), wire.send), daemon=True).start()
    threading.Thread(target=pump, args=(lambda: wire.recv(FRAME_MAX), lambda d: os.write(tap, d)), daemon=True).start()
    found = socket.getaddrinfo("Good.test", 443, type=socket.SOCK_STREAM)
    assert [f[4][0] for f in found] == [SERVER], found
    echo_much(SERVER)
    send_datagrams(SERVER, 7000)
    try:
        socket.getaddrinfo("evil.test", 443)
        raise AssertionError("evil.test has an address")
    except socket.gaierror:
        pass
    fails_with(errno.ECONNREFUSED, lambda: socket.create_connection((HOST, 443), PATIENCE_S))
    fails_with(errno.ECONNREFUSED, lambda: socket.create_connection((PUBLIC, 443), PATIENCE_S))
    fails_with(errno.EHOSTUNREACH, lambda: send_datagrams(PUBLIC, 7000))
    many = [socket.create_connection((SERVER, 443), PATIENCE_S) for _ in range(200)]
    for one in many:
        one.close()
    time.sleep(1.5)  # the last FINs


def fork_guest(wire):
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        be_guest(wire)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def check_told(events):
    flows = [e for e in events if e.kind == CLOSE and e.protocol != UDP]
    assert len(flows) == 201 and all(e.end == CLOSED for e in flows), [(e.flow, e.end) for e in flows]
    assert MUCH < flows[0].sent < 2 * MUCH and MUCH < flows[0].received < 2 * MUCH, (flows[0].sent, flows[0].received)
    assert {(e.name, e.qtype) for e in events if e.kind == DNS and not e.is_denied} == {(b"good.test", 1), (b"good.test", 28)}, "names"
    assert {e.name for e in events if e.kind == DNS and e.is_denied} == {b"evil.test"}, "denied names"
    reasons = [e.reason.decode() for e in events if e.kind == DENIED]
    assert sorted(reasons) == ["it is an address of this host", "no rule allows it", "no rule allows it"], reasons
    assert events[-1].kind == TOTALS and events[-1].sent > MUCH, events[-1].kind


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not os.path.exists("/dev/net/tun"):
        skip("there is no /dev/net/tun")
    World()
    rules = (rule("good.test", 443), rule("203.0.113.0/24", 7000, protocol=UDP))
    with Guest(sys.argv[1], grant(*rules), knows_the_way=False) as g:
        pid = fork_guest(g.wire)
        g.wire.close()
        told = threading.Thread(target=lambda: g.event(99, 4 * PATIENCE_S))
        told.start()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 77:
            skip("unshare is refused")
        told.join()
        assert code == 0, code
        assert g.process.wait(PATIENCE_S) == 0, g.process.returncode
        check_told(g.events)
    print("ok     Linux's own network, %d events told" % len(g.events))
    return 0


sys.exit(main())
