"""Somebody else's authorization server: keys made on the spot, tokens signed with them, a key set served over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://login.example", "https://queue.example/"


class Key:
    """One key pair of the issuer."""

    def __init__(self, kid: str | None, algorithm: str, private: Any = None) -> None:
        self.kid, self.algorithm = kid, algorithm
        self.private = private or _private(algorithm)

    def public(self, **facts: Any) -> dict[str, Any]:
        """Give the entry of the key set, with facts changed or, when None, left out."""
        kind: Any = RSAAlgorithm if self.algorithm[:2] in ("RS", "PS") else ECAlgorithm
        kind = OKPAlgorithm if self.algorithm == "EdDSA" else kind
        found = {**kind.to_jwk(self.private.public_key(), as_dict=True), "use": "sig", "kid": self.kid} | facts
        return {name: value for name, value in found.items() if value is not None}

    def sign(self, claims: dict[str, Any] | None = None, header: dict[str, Any] | None = None, **changed: Any) -> str:
        """Sign a token that is good but for the claims given; one that is None is left out."""
        now = int(time.time())
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "w", "scope": "tools", "iat": now, "exp": now + 60}
        whole = {name: value for name, value in (good | (claims or {}) | changed).items() if value is not None}
        headers = ({"kid": self.kid} if self.kid else {}) | (header or {})
        return jwt.encode(whole, self.private, self.algorithm, headers=headers)


def _private(algorithm: str) -> Any:
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm[:2] == "ES":
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        return ec.generate_private_key(curves[algorithm])
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def key_set(*keys: Key | dict[str, Any]) -> bytes:
    return json.dumps({"keys": [key.public() if isinstance(key, Key) else key for key in keys]}).encode()


class Served:
    """A key set behind HTTP: what it answers may be changed, and how often it was asked is counted."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/keys?v=1"
        self.asked = 0
        self.status, self.body = 200, b""
        self.headers: dict[str, str] = {}
        self.drip = threading.Event()
        self.done = threading.Event()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        handler.send_response(self.status)
        for name, value in {"Content-Length": str(len(self.body)), **self.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if self.drip.is_set():
            self.done.wait(30)
        handler.wfile.write(self.body)


@contextmanager
def serving() -> Iterator[Served]:
    """Serve a key set on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Served(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield served
        finally:
            served.done.set()
            server.shutdown()
            thread.join()
