"""A PostgreSQL server for the tests of one process, and a database in it for each test."""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from agents_net import eventually
from needs import SYSTEM, need
from rota.daemon.database import PostgresDatabase, connect
from rota.daemon.lease import LeaderLease

FOLDERS = "/usr/lib/postgresql/*/bin"
LEASE_S = 600.0  # of tests in which nobody takes over
STARTED_S = 300.0


def _program(name):
    """Where Debian keeps it, the newest version; else on the path."""
    found = sorted(Path("/").glob(f"{FOLDERS.lstrip('/')}/{name}"), key=lambda path: len(str(path)))
    return str(found[-1]) if found else shutil.which(name)


def _someone_else():
    """Options to run a program as another user: the server refuses to work for root."""
    if os.geteuid() != 0:
        return [], None
    nobody = pwd.getpwnam("nobody")
    ids = f"{nobody.pw_uid}", f"{nobody.pw_gid}"
    # it ends with us, however we end
    return [
        "setpriv", f"--reuid={ids[0]}", f"--regid={ids[1]}", "--clear-groups",
        "--pdeathsig", "SIGQUIT",
    ], nobody  # fmt: skip


class PostgresServer:
    """Listens on a Unix socket in a temporary folder; nothing of it is written to the disk."""

    def __init__(self):
        initdb, postgres = _program("initdb"), _program("postgres")
        need(initdb and postgres, "a PostgreSQL server", SYSTEM)
        prefix, owner = _someone_else()
        self.folder = Path(tempfile.mkdtemp(prefix="rota-pg-"))
        if owner is not None:
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        data = self.folder / "data"
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C"}
        subprocess.run(
            [*prefix, initdb, "-D", data, "-U", "rota", "--auth=trust", "--no-sync", "-E", "UTF8",
             "--locale=C"],
            check=True, capture_output=True, env=env, cwd=self.folder,
        )  # fmt: skip
        settings = {
            "listen_addresses": "", "unix_socket_directories": self.folder, "fsync": "off",
            "full_page_writes": "off", "max_connections": "60", "shared_buffers": "16MB",
            "autovacuum": "off",
        }  # fmt: skip
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*prefix, postgres, "-D", data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.folder,
            )  # fmt: skip
        self._numbers = itertools.count(1)
        eventually(self._answers, STARTED_S, 0.05)

    def _answers(self):
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database):
        """How to connect to one of its databases."""
        return f"postgresql://rota@/{database}?host={self.folder}"

    def create(self):
        """Make a new database; its URL."""
        name = f"test{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self.url(name)

    def copy(self, url):
        """Make a database that is as this one is now; its URL."""
        name = f"test{next(self._numbers)}"
        self._as(name, url)
        return self.url(name)

    def put_back(self, url, copy):
        """Make a database as its copy is."""
        self.drop(url)
        self._as(_name(url), copy)

    def _as(self, name, template):
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name} template {_name(template)}")

    def drop(self, url):
        """Remove it, whoever uses it."""
        name = _name(url)
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)")

    def close(self):
        """End it."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _name(url):
    return url.partition("@/")[2].partition("?")[0]


def leading(url, seconds=LEASE_S, address="http://127.0.0.1:1"):
    """A database for a daemon that leads."""
    engine = connect(url, lease_s=seconds, durable=False)
    lease = LeaderLease(engine, address, seconds)
    lease.prepare()
    assert lease.take()
    return PostgresDatabase(engine, lease)
