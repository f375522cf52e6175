"""Where the service is and who asks, found as `cloche` finds it (docs/install.md, cli/client.h).

Endpoint  CLOCHE_ENDPOINT, or RUN/api.sock of the instance on this host
key       CLOCHE_API_KEY, the file CLOCHE_KEY_FILE, or STATE/admin.key
TLS       with CLOCHE_CA, and to other hosts always, unless CLOCHE_INSECURE=1
"""
import ipaddress
import json
import os
import pathlib

import grpc

from .errors import Error

# What would be done twice if it were asked again after its answer was lost.  All else reads, ends what has ended, or has a key by
# which the service knows it again.
_ONCE = {"ExecService": ("Start", "Signal", "WriteStdin"), "JobService": ("Control", "WriteStdin"), "FileService": ("Write", "Rename"),
         "CodeService": ("CreateContext", "RunCode", "RestartContext"), "FunctionService": ("Create", "Call"), "PortService": ("Connect",)}
_AGAIN = {"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}

# To live through a takeover: wait for a connection, ask again what was cut off, and ask the silent whether they are there
# (docs/standby.md).
_OPTIONS = {
    "grpc.service_config": json.dumps({"methodConfig": [
        {"name": [{}], "waitForReady": True, "retryPolicy": _AGAIN},
        {"name": [{"service": f"cloche.v1.{service}", "method": method} for service, methods in _ONCE.items() for method in methods],
         "waitForReady": True}]}),
    "grpc.enable_retries": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
    "grpc.min_reconnect_backoff_ms": 3000,
    "grpc.keepalive_time_ms": 20000,
    "grpc.keepalive_timeout_ms": 5000,
    "grpc.max_receive_message_length": 64 << 20,
    "grpc.max_send_message_length": 64 << 20,
}


def _state_folder():
    """As cli/paths.c."""
    given, xdg = os.environ.get("CLOCHE_STATE_DIR"), os.environ.get("XDG_STATE_HOME")
    if given:
        return pathlib.Path(given)
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/cloche")
    return pathlib.Path(xdg) / "cloche" if xdg else pathlib.Path.home() / ".local/state/cloche"


def _run_folder():
    """As cli/paths.c: one in /tmp may be anybody's, and who owns it would be told the key."""
    given, xdg = os.environ.get("CLOCHE_RUN_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    if given:
        return pathlib.Path(given)
    if os.geteuid() == 0:
        return pathlib.Path("/run/cloche")
    if xdg and os.access(xdg, os.W_OK):
        return pathlib.Path(xdg) / "cloche"
    path = pathlib.Path(f"/tmp/cloche-{os.getuid()}")
    if path.exists() and path.lstat().st_uid != os.getuid():
        raise Error("DENIED", f"{path} belongs to somebody else\nset CLOCHE_RUN_DIR, or XDG_RUNTIME_DIR")
    return path


def _endpoint():
    given = os.environ.get("CLOCHE_ENDPOINT")
    if given:
        return given
    socket = _run_folder() / "api.sock"
    if not socket.exists():
        raise Error("UNAVAILABLE", f"Cloche is not running here (no {socket})\nstart it with `cloche up`, or set CLOCHE_ENDPOINT")
    return f"unix:{socket}"


def _key():
    given = os.environ.get("CLOCHE_API_KEY")
    if given:
        return given
    file = os.environ.get("CLOCHE_KEY_FILE") or _state_folder() / "admin.key"
    try:
        return pathlib.Path(file).read_text().strip()
    except OSError as err:
        raise Error("UNAUTH", f"no API key: {err}\nset CLOCHE_API_KEY or CLOCHE_KEY_FILE") from None


def _host_of(address):
    return address.rpartition(":")[0].strip("[]")


def _is_here(address):
    """On this host, where nobody listens in between."""
    if address.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(_host_of(address)).is_loopback
    except ValueError:
        return _host_of(address) == "localhost"


def _target(endpoint):
    """What gRPC calls it.  Of several schedulers one leads, and gRPC tries a list in its order, but only one of IP addresses."""
    addresses = endpoint.split(",")
    if len(addresses) == 1:
        return endpoint
    try:
        versions = {ipaddress.ip_address(_host_of(a)).version for a in addresses}
    except ValueError:
        versions = ()
    if len(versions) != 1:
        raise Error("INVALID", f"endpoint {endpoint}: gRPC takes a list of IP addresses alone, of one version\n"
                               "give those, or one name that has all of them")
    return f"ipv{versions.pop()}:{endpoint}"


def _credentials(endpoint, ca, insecure):
    """None = in plain text.  An API key never goes so to another host unless one says so."""
    here = {_is_here(address) for address in endpoint.split(",")}
    if len(here) > 1:
        raise Error("INVALID", f"endpoint {endpoint}: some are on this host and some are not: some with TLS and some without are not mixed\n"
                               "name this host as the other ones reach it, too")
    only_unix = all(a.startswith("unix:") for a in endpoint.split(","))
    if insecure or only_unix or (here == {True} and not ca):
        return None
    ca = ca or _state_folder() / "tls/ca.pem"
    try:
        return grpc.ssl_channel_credentials(pathlib.Path(ca).read_bytes())
    except OSError as err:
        raise Error("INVALID", f"the CA of {endpoint}: {err}\nset CLOCHE_CA to the CA file that `cloche status` names on the server") from None


class Where:
    """The service, as channels of gRPC want it, and the metadata of every call."""

    def __init__(self, endpoint, key, ca, insecure):
        endpoint, key, ca = endpoint or _endpoint(), key or _key(), ca or os.environ.get("CLOCHE_CA")
        self.credentials = _credentials(endpoint, ca, insecure or os.environ.get("CLOCHE_INSECURE") == "1")
        self.target, self.options = _target(endpoint), list(_OPTIONS.items())
        self.metadata = [("authorization", f"Bearer {key}")]
        if os.environ.get("TRACEPARENT"):
            self.metadata.append(("traceparent", os.environ["TRACEPARENT"]))
        self._text = f"{endpoint} with the certificate of {ca}" if self.credentials and ca else endpoint

    def channel(self, grpc_):
        """Of grpc or grpc.aio."""
        if self.credentials:
            return grpc_.secure_channel(self.target, self.credentials, self.options)
        return grpc_.insecure_channel(self.target, self.options)

    def nobody(self):
        return Error("UNAVAILABLE", f"no Cloche answers at {self._text}\n`cloche status` on its host shows what is down")


def ports_domain():
    """Of the gateway, for addresses of ports: CLOCHE_PORTS_DOMAIN, or that of this host's."""
    given = os.environ.get("CLOCHE_PORTS_DOMAIN")
    if given:
        return given
    try:
        state = json.loads((_run_folder() / "supervisor.json").read_text())
        return f"http://localhost:{state['mcp'].rpartition(':')[2]}"
    except (OSError, ValueError, KeyError):
        raise Error("INVALID", "no gateway runs on this host\ngive domain (or CLOCHE_PORTS_DOMAIN): the gateway's ports-domain") from None
