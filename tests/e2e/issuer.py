"""An authorization server for tests: keys, the set that it publishes, tokens."""
import base64
import json
import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

ISSUER, AUDIENCE = "https://as.test", "https://cloche.test"
RULES = ("--token-issuer", ISSUER, "--token-audience", AUDIENCE, "--token-scopes", "sandbox:run=run,sandbox:read=read")


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """An authorization server: a key, and what it publishes."""

    def __init__(self, kid):
        self.kid, self.key = kid, ed25519.Ed25519PrivateKey.generate()

    def jwk(self):
        raw = self.key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return {"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": b64(raw)}

    def token(self, **claims):
        base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "tenant": "acme", "scope": "sandbox:run",
                "exp": int(time.time()) + 300}
        base.update(claims)
        text = f"{b64(json.dumps({'alg': 'EdDSA', 'kid': self.kid}).encode())}.{b64(json.dumps(base).encode())}"
        return f"{text}.{b64(self.key.sign(text.encode()))}"


def key_set(*issuers):
    return json.dumps({"keys": [i.jwk() for i in issuers]})
