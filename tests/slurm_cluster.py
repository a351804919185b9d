"""A real Slurm on this machine: munged, slurmctld and several slurmd with fake GPUs, on loopback.

Every daemon runs in the foreground as a child of the test process and dies with it. Each slurmd has
a process namespace of its own, so that `crash` ends a node with everything that runs on it.
"""

import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from claims import claimed_ports
from needs import ROOT, SYSTEM, need

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "setpriv", "unshare")
CPUS, MEMORY_MB = 16, 64_000
PATIENCE_S = 300.0
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
AS_A_MACHINE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

CONF = """\
ClusterName=emulated
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={base}/munge.socket,cred_expire=5
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd.%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes={kinds}
ReturnToService=2
KillWait=2
MinJobAge={min_job_age}
SlurmdTimeout={slurmd_timeout}
MessageTimeout=5
TCPTimeout=1
InactiveLimit=0
Waittime=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
DefMemPerCPU=100
PropagateResourceLimits=NONE
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 "
    "Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} Gres={gres} "
    "State=UNKNOWN"
)


def require_slurm() -> None:
    """Skip the test where Slurm cannot be started; fail it in CI."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    need(not missing, f"Slurm ({', '.join(missing)})", SYSTEM)
    need(os.geteuid() == 0, "root, because fake GPUs of Slurm are device files", ROOT)


class SlurmCluster:
    """Start it with `with`; `env` is what Slurm's commands need."""

    def __init__(
        self, base: Path, nodes: int = 4, gpus: int = 4, *, slurmd_timeout: int = 10,
        min_job_age: int = 300, shards: int = 0,
    ) -> None:  # fmt: skip
        self.base = base
        self.shards = shards * gpus  # of each node
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.gpus = gpus
        self.slurmd_timeout = slurmd_timeout
        self.min_job_age = min_job_age
        self.conf = base / "etc" / "slurm.conf"
        self.env = {"SLURM_CONF": str(self.conf)}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._write()
            self._start("munged", *self._munged())
            self._until("munge.socket is there", (self.base / "munge.socket").exists)
            self.start_controller()
            for name in self.nodes:
                self.boot(name)
            self._until("all nodes are idle", lambda: self.states() == ["idle"] * len(self.nodes))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        for name in sorted(self._children, key=["munged", "slurmctld", *self.nodes].index)[::-1]:
            self._kill(name)

    # --- single machines -------------------------------------------------------------------------

    def boot(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start(node, *AS_A_MACHINE, "slurmd", "-D", "-N", node)

    def crash(self, node: str) -> None:
        """The machine dies with all that runs on it."""
        self._kill(node)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D", "-i")
        self._until("slurmctld answers", lambda: self.call("scontrol", "ping").returncode == 0)

    def stop_controller(self) -> None:
        """End slurmctld (it saves its state: without, it would give numbers of jobs twice)."""
        child = self._children.pop("slurmctld")
        child.terminate()
        child.wait(PATIENCE_S)

    # --- questions -------------------------------------------------------------------------------

    def call(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of Slurm."""
        env = {**os.environ, **self.env}
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def states(self) -> list[str]:
        """States of the nodes, in order of their names."""
        return self.call("sinfo", "-h", "-N", "-o", "%t").stdout.split()

    # --- inside ----------------------------------------------------------------------------------

    def _munged(self) -> tuple[str, ...]:
        base = self.base
        return (
            "munged", "--foreground", "--force", f"--key-file={base}/munge.key",
            f"--socket={base}/munge.socket", f"--pid-file={base}/munged.pid",
            f"--seed-file={base}/munged.seed", f"--log-file={base}/log/munged.log",
        )  # fmt: skip

    def _write(self) -> None:
        base = self.base
        for folder in ("state", "log", "dev", "etc", *(f"spool/{name}" for name in self.nodes)):
            (base / folder).mkdir(parents=True, exist_ok=True)
        base.chmod(0o755)
        key = base / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for number in range(self.gpus):  # a regular file would leave CUDA_VISIBLE_DEVICES unset
            os.mknod(
                base / "dev" / f"nvidia{number}", 0o600 | stat.S_IFCHR, os.makedev(195, number)
            )
        host = socket.gethostname().split(".")[0]
        ports = claimed_ports(len(self.nodes) + 2)
        gres = f"gpu:a100:{self.gpus}" + (f",shard:{self.shards}" if self.shards else "")
        nodes = [
            NODE.format(name=name, host=host, port=port, cpus=CPUS, memory=MEMORY_MB, gres=gres)
            for name, port in zip(self.nodes, ports[2:], strict=True)
        ]
        self.conf.write_text(
            CONF.format(
                host=host, base=base, ctld_port=ports[0], slurmd_port=ports[1],
                nodes="\n".join(nodes), slurmd_timeout=self.slurmd_timeout,
                min_job_age=self.min_job_age, kinds="gpu,shard" if self.shards else "gpu",
            ),
            encoding="utf-8",
        )  # fmt: skip
        files = f"{base}/dev/nvidia" + (f"[0-{self.gpus - 1}]" if self.gpus > 1 else "0")
        names = ",".join(self.nodes)
        (base / "etc" / "gres.conf").write_text(
            f"NodeName={names} Name=gpu Type=a100 File={files} "
            f"Flags=nvidia_gpu_env\n"
            + (f"NodeName={names} Name=shard Count={self.shards}\n" if self.shards else ""),
            encoding="utf-8",
        )

    def _start(self, name: str, *argv: str) -> None:
        with (self.base / "log" / f"{name}.out").open("ab") as output:
            self._children[name] = subprocess.Popen(
                [*DIES_WITH_US, *argv], env={**os.environ, **self.env}, cwd=self.base,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.kill()
            child.wait()

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}"
                    for path in sorted((self.base / "log").iterdir())
                )
                raise TimeoutError(f"Slurm did not come up ({what}):\n{logs}")
            time.sleep(0.1)
