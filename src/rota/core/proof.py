"""Whom a client talks to: a server proves that it knows our token before the token is sent.

On one machine anybody may listen where a daemon was that has died. So the first thing that is said
on a new plain connection is a question that only somebody who knows the token's digest can answer:
the client names the token (by a digest of its digest) and a random number, and the server answers
with a code over that number and the port on which it listens. A stranger who passes the question on
to the daemon gets the code of another port, which is worth nothing here.
"""

import hmac
import ipaddress
import json
import secrets
from collections.abc import Awaitable, Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from rota.core.errors import ForbiddenError
from rota.core.turns import MISDIRECTED

PATH = "/api/v1/proof"
CONNECTED = "connection.connect_tcp.complete"  # the HTTP client's word for a new connection
LONGEST = 1 << 16  # bytes of an answer
TIMEOUT_S = 10.0
OK, UNAUTHORISED, LATER = 200, 401, (MISDIRECTED, 429, 502, 503, 504)


def listens_anybody(server: str) -> bool:
    """May any user of this machine listen at this URL, and is there no certificate?"""
    return server.startswith("http:") and is_loopback(server)


def is_loopback(server: str) -> bool:
    """Does this URL lead to the same machine?"""
    host = urlsplit(server).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_digest(token: str) -> str:
    """All that a daemon keeps of a token: 256 random bits need no slow digest."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=100_000)
def token_label(digest: str) -> str:
    """Names a token to somebody who knows it, and tells others nothing."""
    return sha256(f"rota token {digest}".encode()).hexdigest()[:32]


def server_code(digest: str, nonce: str, port: int) -> str:
    """What only somebody who knows the digest can say; `port`: where the server listens."""
    return hmac.digest(digest.encode(), f"rota server {nonce} {port}".encode(), "sha256").hex()


class ProofTalk:
    """The question and its answer on one connection; no token is in it.

    `relayed`: the address is the end of a tunnel, so the server's own port may be another one.
    """

    def __init__(self, server: str, token: str, *, relayed: bool = False) -> None:
        parts = urlsplit(server)
        self._server, self._relayed = server, relayed
        self._port = parts.port or 80
        self._digest = token_digest(token)
        self._nonce = secrets.token_hex(16)
        self._data = b""
        label = token_label(self._digest)
        self.question = (
            f"GET {PATH}?token={label}&nonce={self._nonce} HTTP/1.1\r\n"
            f"Host: {parts.netloc.rpartition('@')[2]}\r\nAccept: application/json\r\n\r\n"
        ).encode()

    def feed(self, data: bytes) -> bool:
        """Take a piece of the answer; is it complete? ValueError: it never will be."""
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not data or len(self._data) > LONGEST:
            raise ValueError("it broke off")
        return bool(end) and len(body) >= self._length(head)

    @staticmethod
    def _length(head: bytes) -> int:
        for line in head.lower().split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name == b"content-length" and value.strip().isdigit():
                return int(value)
        return 0

    def status(self) -> int:
        """Of the answer; 0: it is none of HTTP."""
        words = self._data.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    def check(self) -> None:
        """ForbiddenError unless the server has proven that it is the one."""
        if self.status() == UNAUTHORISED:
            raise ForbiddenError(
                f"{self._server} does not accept the token: it was revoked, or is of another "
                "daemon: give another with --token-file F, ROTA_TOKEN_FILE or ROTA_TOKEN (an "
                "administrator makes one with `rota token create NAME`)"
            )
        try:
            answer = json.loads(self._data.partition(b"\r\n\r\n")[2])
            code, port = str(answer["code"]), int(answer["port"])
        except (ValueError, KeyError, TypeError, RecursionError):
            code, port = "", self._port
        expected = server_code(self._digest, self._nonce, port)
        if self.status() != OK or not hmac.compare_digest(code.encode(), expected.encode()):
            raise ForbiddenError(
                f"{self._server} cannot prove that it is your daemon, so no token was sent: "
                "another program listens there, or a daemon of an older release: start yours again"
            )
        if port != self._port and not self._relayed:
            raise ForbiddenError(
                f"{self._server} passes on what a daemon at port {port} says, so no token was "
                "sent: if that is a tunnel of your own, set ROTA_TUNNEL=1"
            )


def blocking_check(
    talk: Callable[[], ProofTalk], broken: type[Exception]
) -> Callable[[str, dict[str, Any]], None]:
    """For the `trace` of a blocking HTTP client; `broken`: raised when it may be tried again."""

    def check(event: str, info: dict[str, Any]) -> None:
        if event != CONNECTED:
            return
        stream, asked = info["return_value"], talk()
        try:
            stream.write(asked.question, TIMEOUT_S)
            while not asked.feed(stream.read(LONGEST, TIMEOUT_S)):
                pass
            _judge(asked, broken)
        except ValueError as error:
            stream.close()
            raise broken(f"the server's proof: {error}") from error
        except BaseException:
            stream.close()
            raise

    return check


def async_check(
    talk: Callable[[], ProofTalk], broken: type[Exception]
) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
    """The same for an HTTP client in an event loop."""

    async def check(event: str, info: dict[str, Any]) -> None:
        if event != CONNECTED:
            return
        stream, asked = info["return_value"], talk()
        try:
            await stream.write(asked.question, TIMEOUT_S)
            while not asked.feed(await stream.read(LONGEST, TIMEOUT_S)):
                pass
            _judge(asked, broken)
        except ValueError as error:
            await stream.aclose()
            raise broken(f"the server's proof: {error}") from error
        except BaseException:
            await stream.aclose()
            raise

    return check


def _judge(asked: ProofTalk, broken: type[Exception]) -> None:
    if asked.status() in LATER:
        raise broken(f"the server says {asked.status()}")
    asked.check()
