"""What both clients share: settings, headers, and when a request may be repeated."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from rota.core.errors import RotaError
from rota.sdk.answers import FIRST_OFFSET, TRY_AGAIN, decoded, refused
from rota.sdk.calls import Call
from rota.sdk.patience import Patience, asked_s
from rota.sdk.place import (
    USUAL,
    Place,
    connection,
    find_place,
    is_starting,
    state_folder,
)

STREAM_S = 60.0  # the daemon says that it is there every 15 s
NOTHING_CHANGED = (429, 503)  # the daemon promises so
NO_CONTENT = 204
READY_S, READY_PAUSE_S = 60.0, 0.1  # a daemon that is starting: at most so long, between looks


class Base:
    """Where the daemon is and how patient to be.

    Args:
        server: Its URL; found as `find_place` says if it is not given.
        token: A token for it.
        token_file: Or a file that holds one.
        ca: A file with the certificates to trust (PEM); else ROTA_CA, else what is usual here.
        patience_s: How long to try again while the daemon cannot be reached or is not ready.
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        patience_s: float = 10.0,
    ) -> None:
        self._find = partial(find_place, server, token, token_file=token_file, ca=ca)
        self.place: Place = self._find()
        self.patience_s = patience_s
        self.on_start: Callable[[str], None] = lambda _: None  # told when a daemon is waited for
        self._ready_by_s = 0.0

    def _pause_s(
        self, call: Call, patience: Patience, outcome: httpx2.Response | httpx2.TransportError
    ) -> float | None:
        """Seconds until a request is sent again; None: it is not, this is how it ends.

        A daemon of this machine that is just starting says later where it is and with which token
        to speak to it.
        """
        if isinstance(outcome, httpx2.Response):
            early = outcome.status_code == httpx2.codes.UNAUTHORIZED
            pause_s = wait_after_answer(call, outcome, patience)
        else:
            early = isinstance(outcome, httpx2.ConnectError)
            pause_s = wait_after_error(call, outcome, patience)
        if early and self.place.found == USUAL and not self.place.token:
            place = self._find()
            if place != self.place:
                self.place = place
                self._moved()
                return 0.0
            if is_starting(state_folder()) and self._still_waits():
                return READY_PAUSE_S
        return pause_s

    def _still_waits(self) -> bool:
        if not self._ready_by_s:
            self._ready_by_s = time.monotonic() + READY_S
            self.on_start(f"waiting until the daemon of {state_folder()} is ready")
        return time.monotonic() < self._ready_by_s

    def _moved(self) -> None:
        """The daemon is somewhere else than it was looked for."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "rota-sdk"}
        if self.place.token:
            headers["Authorization"] = f"Bearer {self.place.token}"
        own = {"base_url": self.place.server, "headers": headers, "timeout": 30.0}
        return own | connection(self.place.server, self.place.ca)

    @staticmethod
    def _request(call: Call) -> dict[str, Any]:
        headers = dict(call.headers)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.query),
            "content": call.body,
            "headers": headers,
            "timeout": call.timeout_s,
        }

    def _answer(self, call: Call, response: httpx2.Response) -> Any:
        if response.status_code >= httpx2.codes.BAD_REQUEST or response.is_redirect:
            raise self._refused(response)
        if call.kind is bytes:
            return response.content
        if call.kind is None or response.status_code == NO_CONTENT:
            return None
        return decoded(response.content, call.kind, self.place)

    def _refused(self, response: httpx2.Response) -> RotaError:
        first = response.headers.get(FIRST_OFFSET, "")
        return refused(response.status_code, response.content, self.place, first)


def wait_after_error(call: Call, error: httpx2.TransportError, patience: Patience) -> float | None:
    """Seconds until a request that got no answer is sent again; None: it is not."""
    never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    fixed = isinstance(error, httpx2.UnsupportedProtocol)
    if fixed or not (call.again or never_sent):
        return None
    return patience.wait_s()


def wait_after_answer(call: Call, response: httpx2.Response, patience: Patience) -> float | None:
    """Seconds until a request that was turned away is sent again; None: it is not."""
    status = response.status_code
    if status not in TRY_AGAIN or not (call.again or status in NOTHING_CHANGED):
        return None
    return patience.wait_s(asked_s(response.headers.get("Retry-After")))
