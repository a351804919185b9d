"""An identity provider on this machine, for tests: OpenID Connect with PKCE, nobody has to type.

Whoever comes to its `authorize` is logged in as `claims` says. Tests make it lie by changing
`claims`, `sign` or the keys that it publishes.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT = "rota-test"


def make_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class StandIn(ThreadingHTTPServer):
    """The provider; `claims` are what its tokens say on top of the usual."""

    daemon_threads = True

    def __init__(self, key):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = key
        self.kid = "first"
        self.published = {"first": key}
        self.claims = {"sub": "s-1", "preferred_username": "ann", "groups": ["users"]}
        self.client_secret = ""
        self.document = {}  # what discovery says on top of the truth
        self.codes = {}
        self.asked = []  # paths, in order
        self.broken = 0  # a status for everything
        self.sign = self._sign

    def _sign(self, claims):
        return jwt.encode(claims, self.key, "RS256", {"kid": self.kid})

    def discovery(self):
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            **self.document,
        }

    def jwks(self):
        return {
            "keys": [
                {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}
                for kid, key in self.published.items()
            ]
        }

    def authorize(self, given):
        """Log the visitor in: where the browser is sent."""
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self.codes[code] = given
        return given["redirect_uri"] + "?" + urlencode({"code": code, "state": given["state"]})

    def token(self, form, authorization):
        """Exchange a code, once."""
        given = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        expected = ""
        if self.client_secret:
            basic = f"{CLIENT}:{self.client_secret}".encode()
            expected = "Basic " + base64.b64encode(basic).decode()
        if (
            given is None
            or challenge != given["code_challenge"]
            or form["redirect_uri"] != given["redirect_uri"]
            or authorization != expected
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": given["client_id"], "iat": now, "exp": now + 300,
            "nonce": given["nonce"], **self.claims,
        }  # fmt: skip
        claims = {key: value for key, value in claims.items() if value is not None}
        return 200, {"id_token": self.sign(claims), "access_token": "x", "token_type": "Bearer"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        given = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if self.server.broken:
            self._answer(self.server.broken, {})
        elif parts.path == "/.well-known/openid-configuration":
            self._answer(200, self.server.discovery())
        elif parts.path == "/keys":
            self._answer(200, self.server.jwks())
        elif parts.path == "/authorize":
            self._answer(302, {}, {"Location": self.server.authorize(given)})
        else:
            self._answer(404, {})

    def do_POST(self):
        self.server.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {key: values[0] for key, values in parse_qs(body).items()}
        status, answer = self.server.token(form, self.headers.get("Authorization", ""))
        self._answer(self.server.broken or status, answer)

    def _answer(self, status, content, headers=None):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def running_provider(key):
    with StandIn(key) as provider:
        thread = threading.Thread(target=provider.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()
