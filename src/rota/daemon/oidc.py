"""Log-in by an identity provider: OpenID Connect, authorisation code with PKCE.

An *attempt* belongs to whoever began it and has its secret (a cookie of the browser, or the memory
of `rota login`): the answer of the provider is worth nothing to anybody else. PyJWT checks the
signature, the times, the issuer and the audience of what the provider says.
"""

import hmac
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import httpx2
import jwt
import msgspec

from rota.core.errors import ForbiddenError, InputError, UnavailableError
from rota.core.proof import is_loopback, token_digest
from rota.daemon.settings import OidcSettings
from rota.wire import PEOPLE, TOKEN_NAME, LoginAnswer, LoginStart

T = TypeVar("T")
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures with a key that the provider alone has: never one that both sides know."""
ATTEMPT_S = 600.0
MOST_ATTEMPTS = 1_000  # the oldest go
KNOWN_S = 3600.0  # how long what the provider says of itself is believed
AGAIN_S = 30.0  # between questions for keys that were not there
TIMEOUT_S = 10.0
LONGEST_SUBJECT = 255  # characters, by the standard
LEEWAY_S = 60.0  # clocks differ
OK, BROKEN = 200, 500


class ProviderInfo(msgspec.Struct, frozen=True):
    """What a provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    authorization_response_iss_parameter_supported: bool = False


class _TokenAnswer(msgspec.Struct):
    id_token: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _LoginAttempt(msgspec.Struct, frozen=True):
    state: str
    nonce: str
    verifier: str
    redirect: str
    until_s: float


class Identity(msgspec.Struct, frozen=True):
    """Whom the provider has recognised, and what that makes them here."""

    subject: str
    name: str
    role: str
    queues: tuple[str, ...] | None  # none: as the configuration says


class Provider:
    """The identity provider of the configuration; safe from any thread, and calls may block."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        transport: httpx2.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._attempts: dict[str, _LoginAttempt] = {}  # by the digest of their secret
        self._info: tuple[float, ProviderInfo] | None = None  # when it was asked
        self._keys: tuple[float, list[dict[str, Any]]] | None = None
        self._http = httpx2.Client(
            timeout=TIMEOUT_S, follow_redirects=False, transport=transport,
            trust_env=not is_loopback(settings.issuer),
        )  # fmt: skip

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    # --- the way there and back -------------------------------------------------------------------

    def begin(self, redirect: str) -> LoginStart:
        """Where a browser has to go; `redirect`: where it is sent back to."""
        info = self._provider()
        attempt = _LoginAttempt(
            secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48),
            redirect, self._clock() + ATTEMPT_S,
        )  # fmt: skip
        secret = secrets.token_urlsafe(32)
        with self._lock:
            now_s = self._clock()
            for old in [key for key, each in self._attempts.items() if each.until_s < now_s]:
                del self._attempts[old]
            while len(self._attempts) >= MOST_ATTEMPTS:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[token_digest(secret)] = attempt
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect,
            "scope": " ".join(self.settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _challenge(attempt.verifier),
            "code_challenge_method": "S256",
        }
        address = info.authorization_endpoint
        return LoginStart(f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", secret)

    def finish(self, answer: LoginAnswer, issuer: str = "") -> Identity:
        """Whom the provider has recognised; an attempt can be finished once.

        `issuer`: who says that they answer (RFC 9207); empty: nobody said.

        Raises:
            ForbiddenError: The attempt or the answer is not good, or nobody of ours.
            UnavailableError: The provider cannot be asked.
        """
        with self._lock:
            attempt = self._attempts.pop(token_digest(answer.secret), None)
        if attempt is None or attempt.until_s < self._clock():
            raise ForbiddenError("this log-in was finished before, or took too long: begin again")
        if not _same(attempt.state, answer.state):
            raise ForbiddenError("the answer belongs to another log-in: begin again")
        info = self._provider()
        if (issuer or info.authorization_response_iss_parameter_supported) and not _same(
            info.issuer, issuer
        ):
            raise ForbiddenError("the answer is of another identity provider: begin again")
        claims = self._checked(self._exchange(info, attempt, answer.code), attempt.nonce)
        return self._identity(claims)

    def _exchange(self, info: ProviderInfo, attempt: _LoginAttempt, code: str) -> str:
        """The provider's word for the code that it gave the browser."""
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect,
            "client_id": settings.client_id,
            "code_verifier": attempt.verifier,
        }
        secret = _read_secret(settings.client_secret_file)
        auth = httpx2.BasicAuth(settings.client_id, secret) if secret else httpx2.Auth()
        response = self._ask(lambda: self._http.post(info.token_endpoint, data=form, auth=auth))
        if response.status_code >= BROKEN:
            raise UnavailableError(_trouble(info.token_endpoint, f"it says {response.status_code}"))
        if response.status_code != OK:
            raise ForbiddenError("the identity provider does not accept this log-in: begin again")
        return _decoded(response, _TokenAnswer, info.token_endpoint).id_token

    # --- what the provider says -------------------------------------------------------------------

    def _checked(self, token: str, nonce: str) -> dict[str, Any]:
        """What is in a token of the provider, which is for us and for this attempt."""
        settings = self.settings
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=list(ALGORITHMS), audience=settings.client_id,
                issuer=settings.issuer, leeway=LEEWAY_S,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )  # fmt: skip
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise ForbiddenError(
                f"the identity provider's token cannot be trusted ({error}): begin again"
            ) from error
        audience = claims["aud"]
        several = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if several else settings.client_id) != settings.client_id:
            raise ForbiddenError("the identity provider's token is for another program")
        said = claims.get("nonce")
        if not isinstance(said, str) or not _same(said, nonce):
            raise ForbiddenError("the identity provider's token is of another log-in: begin again")
        return claims

    def _key(self, header: Mapping[str, Any]) -> jwt.PyJWK:
        """The key of a signature; keys that are not known yet are asked for, now and then."""
        wanted, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError(f"signed with {str(algorithm)[:20]!r}")
        for fresh in (False, True):
            usable = [
                key
                for key in self._key_set(fresh=fresh)
                if key.get("use", "sig") == "sig"
                and key.get("alg", algorithm) == algorithm
                and wanted in (None, key.get("kid"))
            ]
            if len(usable) == 1:
                return jwt.PyJWK(usable[0], algorithm)
        raise jwt.PyJWKSetError("signed with a key that the provider does not name")

    def _key_set(self, *, fresh: bool) -> list[dict[str, Any]]:
        now_s, known = self._clock(), self._keys
        if known is not None and now_s - known[0] < (AGAIN_S if fresh else KNOWN_S):
            return known[1]
        address = self._provider().jwks_uri
        found = _decoded(self._get(address), _KeySet, address).keys
        self._keys = now_s, found
        return found

    def _provider(self) -> ProviderInfo:
        now_s, known = self._clock(), self._info
        if known is not None and now_s - known[0] < KNOWN_S:
            return known[1]
        issuer = self.settings.issuer
        address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        info = _decoded(self._get(address), ProviderInfo, address)
        if info.issuer != issuer:
            raise UnavailableError(
                f"oidc.issuer {issuer!r}: the provider there calls itself {info.issuer[:200]!r}: "
                "write it as the provider does"
            )
        for each in (info.authorization_endpoint, info.token_endpoint, info.jwks_uri):
            if urlsplit(each).scheme != "https" and not is_loopback(each):
                raise UnavailableError(_trouble(each[:200], "it is not encrypted"))
        self._info = now_s, info
        return info

    def _get(self, address: str) -> httpx2.Response:
        response = self._ask(lambda: self._http.get(address))
        if response.status_code != OK:
            raise UnavailableError(_trouble(address, f"it says {response.status_code}"))
        return response

    def _ask(self, call: Callable[[], httpx2.Response]) -> httpx2.Response:
        try:
            return call()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnavailableError(_trouble(self.settings.issuer, str(error))) from error

    # --- what that makes them here ----------------------------------------------------------------

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        settings = self.settings
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not TOKEN_NAME.fullmatch(name):
            raise ForbiddenError(
                f"the claim {settings.name_claim!r} is {str(name)[:70]!r}, which cannot be a name "
                "here: name another claim in oidc.name_claim"
            )
        subject = str(claims["sub"])
        if not 0 < len(subject) <= LONGEST_SUBJECT or not subject.isprintable():
            raise ForbiddenError(
                f"the claim 'sub' is {subject[:70]!r}, by which nobody can be known: ask whoever "
                "runs the identity provider"
            )
        groups = _texts(claims.get(settings.group_claim))
        roles = [settings.roles[group] for group in groups if group in settings.roles]
        role = max(roles, key=PEOPLE.index, default=settings.default_role)
        if not role:
            raise ForbiddenError(
                f"{name}: the claim {settings.group_claim!r} gives no role here: ask whoever runs "
                "this cluster (oidc.roles)"
            )
        queues = None
        if settings.queues:
            found = [queue for group in groups for queue in settings.queues.get(group, ())]
            queues = tuple(dict.fromkeys(found))
        return Identity(subject, name, role, queues)


def _challenge(verifier: str) -> str:
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode())


def _texts(claim: Any) -> list[str]:
    """A claim with one value or several."""
    if isinstance(claim, str):
        return [claim]
    return [each for each in claim if isinstance(each, str)] if isinstance(claim, list) else []


def _read_secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise InputError(
            f"oidc.client_secret_file {path}: cannot be read: {error.strerror}"
        ) from error


def _decoded(response: httpx2.Response, kind: type[T], address: str) -> T:
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise UnavailableError(_trouble(address, str(error))) from error


def _trouble(address: str, why: str) -> str:
    return f"the identity provider at {address} cannot be used: {why}: try again later"
