"""How much a daemon bears: 10,000 queued jobs on 1,000 declared nodes, over HTTP.

The backend is `pretend`: everything but the processes of the jobs is real. Prints submissions per
second, latencies of decisions, of lists and of calls beside 5,000 silent or slow connections,
memory, and how long after kill -9 the next daemon is ready. `--jobs`, `--nodes` and `--connections`
change the size. Times are those of this machine with whatever else it does: the load is printed.
What ends with `cpu_ms` is the daemon's own processor time, which other work hardly changes: a core
bears 1,000 ms of it in a second.
"""

import argparse
import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from rota.jobfile.model import JobFile, Resources
from rota.sdk import Client

BULK = 1000
SINGLES, TRIES = 100, 3  # the best try counts: machines are noisy
LISTS, SHOWN = 100, 500  # questions, and jobs of one answer (as `rota ls` asks)
CALLS = 200  # beside the connections that say nothing
PATIENCE_S = 120.0


def job(number: int) -> JobFile:
    sizes = (1, 1, 2, 4, 8, 8, 16)
    gpus = sizes[number % len(sizes)]
    lasts = 5 + number % 60
    return JobFile(
        run="true",
        name=f"load-{number}",
        envs={"PRETEND_S": str(lasts)},
        queue=f"q{number % 3}",
        estimate=float(lasts),
        resources=Resources(gpus=gpus),
    )


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_ms(pid: int) -> float:
    """Processor time that a process has used, with what the system did for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Loaded:
    """A daemon on a state folder that can be killed and started again."""

    def __init__(self, state: Path, nodes: int, policy: str) -> None:
        self.state = state
        self._command = [
            sys.executable, "-m", "rota.cli", "serve", "--backend", "pretend", "--policy", policy,
            "--nodes", f"{nodes}x8", "--listen", "127.0.0.1:0", "--state", str(state),
            "--log-level", "warning",
        ]  # fmt: skip
        os.environ["ROTA_STATE"] = str(state)
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(self._command)
        path = self.state / "server.json"
        until_s = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert process.poll() is None, "the daemon ended"
            assert time.monotonic() < until_s, "the daemon does not start"
            time.sleep(0.005)
        return process

    def cpu_ms(self) -> float:
        """Processor time of the present process."""
        return cpu_ms(self.process.pid)

    def kill_and_start(self) -> float:
        """Kill -9; the seconds from the next start until work is accepted."""
        self.process.kill()
        self.process.wait()
        (self.state / "server.json").unlink()
        began = time.perf_counter()
        self.process = self._start()
        with Client(patience_s=PATIENCE_S) as rota:
            address = rota.place.server
        while httpx2.get(f"{address}/readyz", trust_env=False).status_code != 200:
            time.sleep(0.005)
        return time.perf_counter() - began

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)


def submit_singly(rota: Client) -> float:
    """One request after the other; jobs per second."""
    began = time.perf_counter()
    for number in range(SINGLES):
        rota.submit(job(number))
    return SINGLES / (time.perf_counter() - began)


def p99_ms(call: Callable[[], object], times: int) -> float:
    """The time that one of a hundred calls takes at least."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return 1000 * sorted(found)[max(0, -(-99 * times // 100) - 1)]


@contextlib.contextmanager
def silent(address: str, count: int) -> Iterator[int]:
    """Connections that say nothing, or half of a request; how many there could be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parts = urlsplit(address)
    lines: list[socket.socket] = []
    try:
        for number in range(count):
            with contextlib.suppress(OSError):
                line = socket.create_connection((parts.hostname, parts.port), timeout=5)
                lines.append(line)
                if number % 2:
                    line.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        yield len(lines)
    finally:
        for line in lines:
            line.close()


def measure(
    jobs: int,
    nodes: int,
    policy: str,
    state: Path,
    settle_s: float = 5.0,
    connections: int = 0,
) -> dict[str, float]:
    daemon = Loaded(state, nodes, policy)
    try:
        with Client() as rota:
            files = [job(number) for number in range(jobs)]
            used = [daemon.cpu_ms()]
            began = time.perf_counter()
            for at in range(0, jobs, BULK):
                rota.submit_many(files[at : at + BULK])
            bulk = jobs / (time.perf_counter() - began)
            used.append(daemon.cpu_ms())
            single = max(submit_singly(rota) for _ in range(TRIES))
            used.append(daemon.cpu_ms())
            listed = p99_ms(lambda: list(rota.jobs(active=True, limit=SHOWN)), LISTS)
            used.append(daemon.cpu_ms())
            decisions = rota.status()["decisions"]
            used.append(daemon.cpu_ms())
            time.sleep(settle_s)
            used.append(daemon.cpu_ms())
            status = rota.status()
            address = rota.place.server
        found = {
            "bulk_jobs_per_s": bulk,
            "bulk_job_cpu_ms": (used[1] - used[0]) / jobs,
            "single_jobs_per_s": single,
            "single_job_cpu_ms": (used[2] - used[1]) / (SINGLES * TRIES),
            "list_cpu_ms": (used[3] - used[2]) / LISTS,
            "decisions": status["decisions"],
            "decision_cpu_ms": (used[5] - used[4]) / max(1, status["decisions"] - decisions),
            "decision_p50_ms": 1000 * status["decision_s"]["p50"],
            "decision_p99_ms": 1000 * status["decision_s"]["p99"],
            "commit_p99_ms": 1000 * status["commit_s"]["p99"],
            "list_p99_ms": listed,
            "memory_mib": memory_mib(daemon.process.pid),
            "pending": status["jobs"].get("PENDING", 0),
            "running": status["jobs"].get("RUNNING", 0),
        }
        if connections:
            with silent(address, connections) as open_ones, Client(address) as rota:
                found["silent_connections"] = open_ones
                found["call_beside_them_p99_ms"] = p99_ms(rota.whoami, CALLS)
                found["list_beside_them_p99_ms"] = p99_ms(
                    lambda: list(rota.jobs(active=True, limit=SHOWN)), LISTS
                )
        found["ready_after_kill_s"] = daemon.kill_and_start()
        found["ready_after_kill_cpu_ms"] = daemon.cpu_ms()
        return found
    finally:
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--policy", default="tiresias")
    options = parser.parse_args()
    print(f"{'load_before':25} {os.getloadavg()[0]:12.1f}")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(
            options.jobs, options.nodes, options.policy, Path(folder) / "state",
            connections=options.connections,
        )  # fmt: skip
    for name, value in found.items():
        print(
            f"{name:25} {value:12.3f}" if name.endswith("_cpu_ms") else f"{name:25} {value:12.1f}"
        )
    print(f"{'load_after':25} {os.getloadavg()[0]:12.1f}")


if __name__ == "__main__":
    main()
