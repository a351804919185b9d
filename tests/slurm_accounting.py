"""A real Slurm with accounting: MariaDB and slurmdbd beside the daemons of `slurm_cluster`.

Everything listens on loopback, lives in one folder and dies with the test process.
"""

import shutil
import subprocess
from pathlib import Path

from claims import claimed_ports
from needs import SYSTEM, need
from slurm_cluster import PATIENCE_S, SlurmCluster, require_slurm

PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
NONE = "AccountingStorageType=accounting_storage/none"
STORE = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={base}/munge.socket
AccountingStorageTRES=gres/gpu,gres/gpu:a100
AccountingStoreFlags=job_comment"""
SLURMDBD = """\
AuthType=auth/munge
AuthInfo=socket={base}/munge.socket
DbdAddr=127.0.0.1
DbdHost=localhost
DbdPort={port}
CommunicationParameters=NoInAddrAny
SlurmUser=root
LogFile={base}/log/slurmdbd.log
PidFile={base}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={db_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
"""
GRANTS = """\
create database if not exists slurm_acct;
create user slurm@'127.0.0.1' identified by 'slurm';
create user slurm@'localhost' identified by 'slurm';
grant all on slurm_acct.* to slurm@'127.0.0.1';
grant all on slurm_acct.* to slurm@'localhost';
"""


def require_accounting() -> None:
    """Skip the test where Slurm with accounting cannot be started; fail it in CI."""
    require_slurm()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    need(not missing, f"Slurm's accounting ({', '.join(missing)})", SYSTEM)


class AccountingCluster(SlurmCluster):
    """Start it with `with`; `sacct` then knows every job."""

    def __init__(self, base: Path, nodes: int = 3, gpus: int = 4) -> None:
        super().__init__(base, nodes, gpus)
        self._port, self._db_port = claimed_ports(2)
        self._stores: dict[str, subprocess.Popen[bytes]] = {}

    def start_controller(self) -> None:
        """Start the accounting first, or its beginning would be missing."""
        if not self._stores:
            self._start_database()
            self._start_slurmdbd()
        super().start_controller()

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        for name in ("slurmdbd", "mariadbd"):
            child = self._stores.pop(name, None)
            if child is not None:
                child.kill()
                child.wait()

    def sacct(self, *args: str) -> str:
        """What the accounting says of all jobs since yesterday."""
        done = self.call("sacct", "-a", "-S", "now-1days", *args)
        assert not done.returncode, done.stderr
        return done.stdout

    def _write(self) -> None:
        super()._write()
        text = self.conf.read_text()
        assert NONE in text
        self.conf.write_text(text.replace(NONE, STORE.format(base=self.base, port=self._port)))
        conf = self.base / "etc" / "slurmdbd.conf"
        conf.write_text(
            SLURMDBD.format(base=self.base, port=self._port, db_port=self._db_port),
            encoding="utf-8",
        )
        conf.chmod(0o600)

    def _start_database(self) -> None:
        data = self.base / "db"
        subprocess.run(
            [
                "mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}",
                "--auth-root-authentication-method=normal", "--skip-test-db",
            ],
            check=True, capture_output=True, timeout=PATIENCE_S * 2,
        )  # fmt: skip
        socket = self.base / "db.sock"
        self._keep(
            "mariadbd", "mariadbd", "--no-defaults", "--user=root", f"--datadir={data}",
            f"--socket={socket}", "--bind-address=127.0.0.1", f"--port={self._db_port}",
            "--innodb-buffer-pool-size=16M", "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin",
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", "-S", str(socket), "-uroot")
        self._until("MariaDB answers", lambda: not self.call(*client, "-e", "select 1").returncode)
        done = self.call(*client, "-e", GRANTS)
        assert not done.returncode, done.stderr

    def _start_slurmdbd(self) -> None:
        self._keep("slurmdbd", "slurmdbd", "-D")
        add = ("sacctmgr", "-i", "add", "cluster", "emulated")
        self._until("slurmdbd answers", lambda: not self.call(*add).returncode)

    def _keep(self, name: str, *argv: str) -> None:
        """Apart from the daemons that the other class knows."""
        self._start(name, *argv)
        self._stores[name] = self._children.pop(name)


def newest(folder: Path) -> str:
    """The last lines of every log, for a test that fails."""
    return "\n".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
        for path in sorted((folder / "log").iterdir())
        if path.stat().st_size
    )
