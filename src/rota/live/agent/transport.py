"""Carries the messages of an agent over HTTP."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from rota.core.errors import ClusterError, InputError
from rota.live.agent.link import OFTEN
from rota.live.agent.messages import AgentOrders, AgentReport

PATH = "/api/v1/agent/sync"
ANSWER_S, SHORTEST_S = 10.0, 1.0  # for an answer that need not wait
TRY_AGAIN = (429, 502, 503, 504)
REMEDIES = {
    401: "check the token file",
    403: "give it a token of `rota token create NAME --role agent`",
}


class _Problem(msgspec.Struct):
    error: str


class HttpTransport:
    """Posts reports to a server; the token is read again for each, so it may be replaced.

    `connection`: settings of the HTTP client, such as whom to trust.
    """

    def __init__(
        self, server: str, token_file: Path, connection: Mapping[str, Any] | None = None
    ) -> None:
        self._url = server.rstrip("/") + PATH
        self._token_file = token_file
        self._patience_s = ANSWER_S
        self._token()
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AgentOrders)
        try:
            self._client = httpx2.Client(**(connection or {}))
            self._client.build_request("POST", self._url)
        except (httpx2.InvalidURL, ValueError) as error:
            raise InputError(f"--server {server}: {error}") from error

    def __call__(self, report: AgentReport) -> AgentOrders:
        """Send a report and wait for the orders; ClusterError if that fails."""
        try:
            response = self._client.post(
                self._url,
                content=self._encoder.encode(report),
                headers={
                    "Authorization": f"Bearer {self._token()}",
                    "Content-Type": "application/json",
                },
                timeout=httpx2.Timeout(self._patience_s, read=report.wait_s + self._patience_s),
            )
        except httpx2.HTTPError as error:
            why = f"{type(error).__name__}: {error}"
            if "CERTIFICATE_VERIFY_FAILED" in why:
                why += ": name the file with its certificate with --ca"
            raise ClusterError(why, retryable=True) from error
        if response.status_code != httpx2.codes.OK:
            raise _refusal(response)
        try:
            orders = self._decoder.decode(response.content)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"the server's answer makes no sense: {error}") from error
        if orders.lost_s:  # a connection that hangs must not cost all the time that there is
            self._patience_s = min(ANSWER_S, max(SHORTEST_S, orders.lost_s / OFTEN))
        return orders

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _token(self) -> str:
        try:
            token = self._token_file.read_text().strip()
            mode = self._token_file.stat().st_mode
        except OSError as error:
            raise InputError(f"--token-file {self._token_file}: {error.strerror}") from error
        if mode & 0o077 and os.geteuid() == self._token_file.stat().st_uid:
            raise InputError(
                f"--token-file {self._token_file}: others can read it: chmod 600 {self._token_file}"
            )
        if not token.isascii() or not token.isprintable() or not token:
            raise InputError(f"--token-file {self._token_file}: there is no token in it")
        return token


def _refusal(response: httpx2.Response) -> ClusterError:
    """What the server says against it, and what helps."""
    status = response.status_code
    try:
        why = msgspec.json.decode(response.content, type=_Problem).error
    except msgspec.DecodeError:
        why = response.text[:200]
    remedy = f": {REMEDIES[status]}" if status in REMEDIES else ""
    return ClusterError(f"the server says {status}: {why}{remedy}", retryable=status in TRY_AGAIN)
