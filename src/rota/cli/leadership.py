"""A daemon that takes turns with others on one database: it stands by, leads, stands by again."""

import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from rota.api import ApiSettings, Server, allowed_hosts, create_standby, listen, serve
from rota.api.serving import url_of
from rota.cli.signals import run_until_told, work_until_done
from rota.core.errors import InputError, UnavailableError
from rota.daemon.authority import Authority
from rota.daemon.database import connect, known_authority, unreachable
from rota.daemon.folder import TLS, StateFolder
from rota.daemon.lease import RENEWALS, FencedError, LeaderLease, LeaseKeeper
from rota.daemon.seal import Seal
from rota.daemon.settings import Settings, read_settings
from rota.daemon.store import counters_of
from rota.server import Assembly, LeadersTurn

log = structlog.get_logger("rota")


class Candidate:
    """One of several daemons. Its address is the same all the time, whether it leads or not."""

    def __init__(
        self,
        state: Path,
        settings: Settings,
        *,
        config: Path | None = None,
        said: Mapping[str, Any] | None = None,
        accept_loss: bool = False,
    ) -> None:
        self._state = state
        self._settings = settings
        self._config = config
        self._said = said or {}
        self._accept_loss = accept_loss
        self._leader = ""  # as far as is known
        self._missing = ""  # in the database that was there before
        self._stopped = threading.Event()
        self._engine = connect(settings.store, lease_s=settings.lease_s, durable=settings.durable)
        self._listener = listen(*settings.address)
        self._tls = settings.tls_cert, settings.tls_key
        self._authority = ""  # by which certificates of machines are signed
        if not settings.tls_cert and Authority.is_in(state / TLS):
            authority = Authority(state / TLS)
            self._authority = authority.fingerprint.hex()
            self._tls = str(authority.server[0]), str(authority.server[1])
        self._url = url_of(self._listener, tls=bool(self._tls[0]))
        address = settings.advertise or _from_elsewhere(self._url)
        self._lease = LeaderLease(self._engine, address, settings.lease_s)

    def run(self) -> None:
        """Work until a signal says stop."""
        try:
            try:
                self._lease.prepare()
            except DBAPIError as error:
                raise unreachable(self._engine, error) from error
            self._refuse_stranger()
            while self._take_or_wait() and self._lead():
                pass
        finally:
            self._listener.close()
            self._engine.dispose()

    def _refuse_stranger(self) -> None:
        """Machines that joined another authority could not follow us: say so now, not then."""
        if not self._lease.leader():
            return  # nobody leads: whoever does next decides
        known = known_authority(self._engine)
        if known not in (None, self._authority):
            raise InputError(
                f"{self._state / TLS}: the certificates of the daemon that leads "
                f"({self._lease.leader()}) are of another authority: copy its tls/ca.pem and "
                f"tls/ca.key here, then run `rota tls renew --state {self._state} --name HOST`"
            )

    # --- standing by ------------------------------------------------------------------------------

    def _take_or_wait(self) -> bool:
        """Return when it is our turn; False: we were told to stop."""
        if self._try():
            return True
        settings = self._settings
        limits = ApiSettings(
            hosts=allowed_hosts(settings.address[0]),
            tls_cert=self._tls[0],
            tls_key=self._tls[1],
        )
        app = create_standby(limits, lambda: self._leader)
        with StateFolder(self._state) as folder:
            self._seal = Seal(folder.seal)
            server = serve(app, listener=self._listener.dup())
            folder.announce(self._url)
            log.info("stands by", url=self._url, leader=self._leader)
            handlers: dict[int, Callable[[int], None]] = {
                signal.SIGTERM: lambda _: self._stopped.set(),
                signal.SIGINT: lambda _: self._stopped.set(),
                # the configuration is read when it is our turn
                signal.SIGHUP: lambda _: self._renew_certificate(server),
            }
            try:
                work_until_done(self._wait, handlers)
            finally:
                server.stop()
                self._seal.close()
        return not self._stopped.is_set()

    @staticmethod
    def _renew_certificate(server: Server) -> None:
        if server.renew_certificate():
            log.info("the certificate was replaced")

    def _wait(self) -> None:
        while True:
            if self._leader:
                self._witness()
            if self._stopped.wait(self._lease.seconds / RENEWALS) or self._try():
                return

    def _witness(self) -> None:
        """Note how far the leader has come: if it is lost, and the database put back, we know."""
        try:
            seen = counters_of(self._engine)
            missing = "" if seen is None else self._seal.witness(seen)
        except (DBAPIError, OSError) as error:
            log.warning("how far the database has come was not noted", why=str(error).strip())
            return
        if missing != self._missing:
            self._missing = missing
            if missing:
                log.warning(
                    "the database went back in time: this daemon will not lead without "
                    "--accept-loss",
                    why=missing,
                )

    def _try(self) -> bool:
        try:
            if self._lease.take():
                return True
            leader = self._lease.leader()
        except DBAPIError as error:
            log.warning("the database cannot be used", why=str(error.orig).strip())
            leader = ""
        if leader != self._leader:
            log.info("another daemon leads" if leader else "nobody leads", leader=leader)
        self._leader = leader
        return False

    # --- leading ----------------------------------------------------------------------------------

    def _lead(self) -> bool:
        """Work as the leader; True: the lease was lost, stand by again."""
        lease = self._lease
        log.info("leads", term=lease.term)
        keeper = LeaseKeeper(lease)
        keeper.start()
        self._read_again()
        try:
            assembly = Assembly(
                StateFolder(self._state), self._settings, config=self._config, said=self._said,
                accept_loss=self._accept_loss,
                turn=LeadersTurn(self._engine, lease, self._listener.dup()),
            )  # fmt: skip
            self._accept_loss = False  # it was said of what is there now
            keeper.on_loss = assembly.step_down
            if keeper.lost:
                assembly.step_down()
            try:
                run_until_told(assembly)
            finally:
                assembly.close()
        except UnavailableError as error:
            if not keeper.lost and not isinstance(error, FencedError):
                raise
            keeper.lost = keeper.lost or str(error)
        finally:
            keeper.stop()
            with suppress(DBAPIError):
                lease.give_up()
        if keeper.lost:
            log.warning("leads no more", why=keeper.lost)
        return bool(keeper.lost)

    def _read_again(self) -> None:
        """The configuration may have changed since we stood by or led."""
        try:
            self._settings = read_settings(self._config, self._said)
        except InputError as error:  # a mistake of today must not cost everybody the leader
            log.warning("the configuration is as before", why=str(error))


def _from_elsewhere(url: str) -> str:
    """Where other machines find a daemon that listens everywhere."""
    name = socket.gethostname()
    return url.replace("//0.0.0.0:", f"//{name}:").replace("//[::]:", f"//{name}:")
