"""Carries the messages of an agent over HTTP."""

import logging
import os
import ssl
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from rota.core.errors import ClusterError, ForbiddenError, InputError, UnavailableError
from rota.core.membership import Membership
from rota.core.proof import ProofTalk, blocking_check, listens_anybody
from rota.core.turns import LEADER, MISDIRECTED, Turns
from rota.live.agent.identity import AgentIdentity, JoinCode, check_pin
from rota.live.agent.link import OFTEN
from rota.live.agent.messages import AgentOrders, AgentReport
from rota.live.calls import LaneOrders, LaneReport, PieceRequest

log = logging.getLogger("rota.agent")

PATH = "/api/v1/agent/sync"
LANE_PATH = "/api/v1/agent/lane"
PIECE_PATH = "/api/v1/agent/pieces"
JOIN_PATH = "/api/v1/agent/join"
RENEW_PATH = "/api/v1/agent/certificate"
AUTHORITY_PATH = "/api/v1/authority"
ANSWER_S, SHORTEST_S = 10.0, 1.0  # for an answer that need not wait
TRY_AGAIN = (MISDIRECTED, 429, 502, 503, 504)
ELSEWHERE = (MISDIRECTED, 502, 503, 504)
REMEDIES = {
    401: "check the token file",
    403: "give it a token of `rota token create NAME --role agent`",
}


class _Problem(msgspec.Struct):
    error: str


class HttpTransport:
    """Posts reports to a server; the token is read again for each, so it may be replaced.

    `server`: its URL, or several with commas between them, of which one leads: the next one is
    asked when one does not answer or does not lead. `token_file`: None: the connection shows a
    certificate. `connection`: settings of the HTTP client, such as whom to trust. `relayed`: an
    address of this machine is the end of a tunnel.
    """

    def __init__(
        self,
        server: str,
        token_file: Path | None,
        connection: Mapping[str, Any] | None = None,
        *,
        relayed: bool = False,
    ) -> None:
        self._servers = Turns([url.rstrip("/") for url in server.split(",")])
        self._relayed = relayed
        self._token_file = token_file
        self._patience_s = ANSWER_S
        self._token()
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AgentOrders)
        self._client = self._connect(connection or {})

    def _connect(self, connection: Mapping[str, Any]) -> httpx2.Client:
        try:
            client = httpx2.Client(**connection)
            for url in self._servers.urls:
                client.build_request("POST", url + PATH)
        except (httpx2.InvalidURL, ValueError) as error:
            raise InputError(f"--server {','.join(self._servers.urls)}: {error}") from error
        return client

    def __call__(self, report: AgentReport) -> AgentOrders:
        """Send a report and wait for the orders; ClusterError if that fails."""
        content = self._post(PATH, self._encoder.encode(report), report.wait_s)
        try:
            orders = self._decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the server's answer makes no sense: {error}") from error
        if orders.lost_s:  # a connection that hangs must not cost all the time that there is
            self._patience_s = min(ANSWER_S, max(SHORTEST_S, orders.lost_s / OFTEN))
        return orders

    def lane(self, report: LaneReport) -> LaneOrders:
        """Bring answers and take calls; ClusterError if that fails."""
        content = self._post(LANE_PATH, msgspec.msgpack.encode(report), report.wait_s)
        try:
            orders = msgspec.msgpack.decode(content, type=LaneOrders)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the server's answer makes no sense: {error}") from error
        if orders.error:
            raise ClusterError(orders.error)
        return orders

    def piece(self, job: str, digest: str) -> bytes:
        """A piece of what was sent for a job; ClusterError if that fails."""
        return self._post(PIECE_PATH, msgspec.json.encode(PieceRequest(job, digest)), ANSWER_S)

    def _post(self, path: str, body: bytes, wait_s: float) -> bytes:
        """Send something that the server may take so long to answer."""
        server, token = self._servers.current, self._token()
        extensions: dict[str, Any] = {}
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if token and listens_anybody(server):
            talk = partial(ProofTalk, server, token, relayed=self._relayed)
            extensions["trace"] = blocking_check(talk, httpx2.ConnectError)
        try:
            response = self._client.post(
                server + path,
                content=body,
                headers=headers,
                timeout=httpx2.Timeout(self._patience_s, read=wait_s + self._patience_s),
                extensions=extensions,
            )
        except ForbiddenError as error:  # perhaps the server comes back
            self._servers.leave(server)
            raise ClusterError(str(error), retryable=True) from error
        except httpx2.HTTPError as error:
            why = f"{type(error).__name__}: {error}"
            if "CERTIFICATE_VERIFY_FAILED" in why:
                why += ": name the file with its certificate with --ca"
            self._servers.leave(server)
            raise ClusterError(why, retryable=True) from error
        if response.status_code in ELSEWHERE:
            self._servers.leave(server, response.headers.get(LEADER, ""))
        if response.status_code != httpx2.codes.OK:
            raise _refusal(response)
        return response.content

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _token(self) -> str:
        """What to show; empty: the connection has a certificate."""
        file = self._token_file
        if file is None:
            return ""
        try:
            token = file.read_text().strip()
            mode = file.stat().st_mode
        except OSError as error:
            raise InputError(f"--token-file {file}: {error.strerror}") from error
        if mode & 0o077 and os.geteuid() == file.stat().st_uid:
            raise InputError(f"--token-file {file}: others can read it: chmod 600 {file}")
        if not token.isascii() or not token.isprintable() or not token:
            raise InputError(f"--token-file {file}: there is no token in it")
        return token


class CertifiedTransport(HttpTransport):
    """Shows the certificate of an agent that has joined, and asks for another one in time."""

    def __init__(self, server: str, identity: AgentIdentity, node: str) -> None:
        self._identity = identity
        self._node = node
        self._lock = threading.Lock()
        super().__init__(server, None, {"verify": identity.trusting(), "trust_env": False})

    def __call__(self, report: AgentReport) -> AgentOrders:
        """Send a report and wait for the orders; ClusterError if that fails."""
        self._renew()
        return super().__call__(report)

    def _renew(self) -> None:
        """If it is time; a certificate that is still good serves until it works."""
        with self._lock:
            if not self._identity.is_due:
                return
            key, csr = self._identity.new_request(self._node)
            try:
                answer = self._client.post(self._servers.current + RENEW_PATH, json={"csr": csr})
            except httpx2.HTTPError as error:
                log.warning("certificate.not_renewed", extra={"why": str(error)})
                return
            if answer.status_code != httpx2.codes.OK:
                log.warning("certificate.not_renewed", extra={"why": str(_refusal(answer))})
                return
            self._identity.keep(msgspec.json.decode(answer.content, type=Membership), key)
            # the other thread may be in a call: what it uses is closed when it is done with it
            self._client = self._connect({"verify": self._identity.trusting(), "trust_env": False})
            log.info("certificate.renewed")


def join(
    servers: str,
    code: JoinCode,
    node: str,
    identity: AgentIdentity,
    connection: Mapping[str, Any] | None = None,
) -> None:
    """Exchange a code for a credential of this machine's own, at the first server that leads.

    The authority of the server is the one that the code names: nothing is sent to another.
    """
    failure: Exception | None = None
    for server in servers.split(","):
        try:
            answer, key = _ask_to_join(server.rstrip("/"), code, node, identity, connection or {})
        except (httpx2.HTTPError, OSError) as error:
            failure = UnavailableError(f"{server} cannot be reached: {error}")
            continue
        if answer.status_code == httpx2.codes.OK:
            identity.keep(msgspec.json.decode(answer.content, type=Membership), key)
            return
        failure = _refusal(answer)
        if answer.status_code not in ELSEWHERE:
            break
    assert failure is not None  # noqa: S101 - there is at least one server
    raise failure


def _ask_to_join(
    server: str, code: JoinCode, node: str, identity: AgentIdentity, connection: Mapping[str, Any]
) -> tuple[httpx2.Response, bytes]:
    """The answer, and the key for which a certificate was asked."""
    settings = {**connection, "timeout": ANSWER_S}
    if server.startswith("https:") and code.pin:
        settings |= {"verify": _pinned(server, code), "trust_env": False}
    key, csr = identity.new_request(node)
    with httpx2.Client(**settings) as client:
        body = {"secret": code.secret, "node": node, "csr": csr}
        return client.post(server + JOIN_PATH, json=body), key


def _pinned(server: str, code: JoinCode) -> ssl.SSLContext:
    """Trust the authority that the code names; to ask for it no secret is sent."""
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    with httpx2.Client(verify=anybody, trust_env=False, timeout=ANSWER_S) as client:
        answer = client.get(server + AUTHORITY_PATH)
        answer.raise_for_status()  # a server that cannot answer now: another one may
        pem = answer.text
    check_pin(pem, code.pin)
    return ssl.create_default_context(cadata=pem)


def _refusal(response: httpx2.Response) -> ClusterError:
    """What the server says against it, and what helps."""
    status = response.status_code
    try:
        why = msgspec.json.decode(response.content, type=_Problem).error
    except msgspec.DecodeError:
        why = response.text[:200]
    remedy = f": {REMEDIES[status]}" if status in REMEDIES else ""
    return ClusterError(f"the server says {status}: {why}{remedy}", retryable=status in TRY_AGAIN)
