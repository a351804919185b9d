"""Requests to an API server: objects, lists in pages, watches."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx2
import msgspec

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.access import KubeAccess

KubeObject: TypeAlias = Mapping[str, Any]
PAGE = 500
WATCH_S = 300  # then the server ends a watch, and the next one goes on where it was
SILENCE_S = 90.0  # more than the minute between two bookmarks
PASSING = (0, 401, 403, 429)
"""No answer, not yet or not now: a server that starts does not know its own rules at first."""
FAULT = 500
GONE = 410
NOT_FOUND = 404
CONFLICT = 409
OPENED = "OPENED"  # not of Kubernetes: a watch has begun
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # lists of Kubernetes' own kinds are merged


class KubeError(ClusterError):
    """The API server says no; `status` is that of HTTP, 0 if it does not answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, retryable=status in PASSING or status >= FAULT)
        self.status = status


class KubeApi:
    """One API server. Any thread may call; `calls` counts requests by verb."""

    def __init__(self, access: KubeAccess, timeout_s: float = 20.0) -> None:
        self.access = access
        self.calls: dict[str, int] = {}
        self._lock = threading.Lock()
        self._watched: set[socket.socket] = set()
        self._closed = False
        self._http = httpx2.Client(
            base_url=access.server, verify=access.verify, timeout=timeout_s, trust_env=False,
            limits=httpx2.Limits(max_connections=32, max_keepalive_connections=16),
        )  # fmt: skip

    def end_watches(self) -> None:
        """Watches end at once, and no other begins."""
        with self._lock:
            self._closed = True
            watched = list(self._watched)
        for line in watched:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections; nobody may use them any more."""
        self.end_watches()
        self._http.close()

    # --- single requests --------------------------------------------------------------------------

    def get(self, path: str, **query: str) -> KubeObject:
        """An object, or a list."""
        return self._object("GET", path, params=query)

    def create(self, path: str, body: KubeObject, **query: str) -> KubeObject:
        """Make an object in a collection."""
        return self._object("POST", path, json=body, params=query)

    def patch(self, path: str, body: KubeObject, *, kind: str = MERGE, **query: str) -> KubeObject:
        """Change an object: members that are given replace, null removes."""
        return self._object("PATCH", path, json=body, params=query, headers={"content-type": kind})

    def replace(self, path: str, body: KubeObject, **query: str) -> KubeObject:
        """Let an object be this; a conflict if it is not of the version that `body` has."""
        return self._object("PUT", path, json=body, params=query)

    def delete(self, path: str, body: KubeObject | None = None, **query: str) -> KubeObject:
        """Remove an object, or those of a collection that a selector names."""
        return self._object("DELETE", path, json=body or {}, params=query)

    def text(self, path: str, **query: str) -> bytes:
        """An answer that is not JSON: the log of a pod."""
        return self._send("GET", path, params=query).content

    def _object(self, verb: str, path: str, **more: Any) -> KubeObject:
        found = self._send(verb, path, **more)
        try:
            content = msgspec.json.decode(found.content)
        except msgspec.DecodeError as error:
            raise KubeError(f"{verb} {path}: the answer is no JSON", 0) from error
        return content if isinstance(content, Mapping) else {}

    def _send(self, verb: str, path: str, **more: Any) -> httpx2.Response:
        self.calls[verb] = self.calls.get(verb, 0) + 1
        headers = {**self.access.headers(), **more.pop("headers", {})}
        if "json" in more:
            more["content"] = msgspec.json.encode(more.pop("json"))
            headers.setdefault("content-type", "application/json")
        try:
            answer = self._http.request(verb, path, headers=headers, **more)
        except httpx2.HTTPError as error:
            where = f"the Kubernetes API server at {self.access.server}"
            raise KubeError(f"{where} does not answer ({error})", 0) from error
        if answer.is_error:
            raise _refusal(verb, path, answer.status_code, answer.content)
        return answer

    # --- many objects -----------------------------------------------------------------------------

    def pages(self, path: str, **query: str) -> tuple[list[KubeObject], str]:
        """All objects of a collection, and the version from which to watch it."""
        found: list[KubeObject] = []
        more = {"limit": str(PAGE)}
        while True:
            page = self.get(path, **query, **more)
            items = page.get("items")
            found += items if isinstance(items, list) else []
            about = part(page, "metadata")
            rest = text(about, "continue")
            if not rest:
                return found, text(about, "resourceVersion")
            more = {"limit": str(PAGE), "continue": rest}

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, KubeObject]]:
        """Changes since a version: ADDED, MODIFIED, DELETED and BOOKMARK, until the server ends it.

        First comes OPENED, without an object: the server answers, and nothing need change soon.

        Raises:
            KubeError: with the status 410 if the version is too old, or the server is gone.
        """
        self.calls["WATCH"] = self.calls.get("WATCH", 0) + 1
        asked = {
            **query, "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }  # fmt: skip
        quiet = httpx2.Timeout(20.0, read=WATCH_S + SILENCE_S)
        try:
            with self._http.stream(
                "GET", path, params=asked, headers=self.access.headers(), timeout=quiet
            ) as answer:
                if answer.is_error:
                    raise _refusal("WATCH", path, answer.status_code, answer.read())
                with self._until_closed(answer):
                    yield OPENED, {}
                    for line in answer.iter_lines():
                        if line:
                            yield _change(path, line)
        except httpx2.HTTPError as error:
            raise KubeError(f"the watch of {path} broke ({error})", 0) from error

    @contextmanager
    def _until_closed(self, answer: httpx2.Response) -> Iterator[None]:
        """`end_watches` ends it: nobody else would wake a thread that waits for the server."""
        line = answer.extensions["network_stream"].get_extra_info("socket")
        with self._lock:
            if self._closed:
                raise KubeError("the connection to Kubernetes is closed", 0)
            self._watched.add(line)
        try:
            yield
        finally:
            with self._lock:
                self._watched.discard(line)


def _change(path: str, line: str) -> tuple[str, KubeObject]:
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise KubeError(f"the watch of {path} sent no JSON", 0) from error
    kind, item = text(event, "type"), part(event, "object")
    if kind == "ERROR":
        code = item.get("code")
        raise KubeError(
            text(item, "message") or f"the watch of {path} failed",
            code if isinstance(code, int) else 0,
        )
    return kind, item


def _refusal(verb: str, path: str, status: int, content: bytes) -> KubeError:
    try:
        said = msgspec.json.decode(content)
    except msgspec.DecodeError:
        said = {}
    message = text(said, "message") if isinstance(said, Mapping) else ""
    return KubeError(f"{verb} {path}: {message or f'status {status}'}", status)
