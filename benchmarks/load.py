"""How much a daemon bears: 10,000 queued jobs on 1,000 declared nodes, over HTTP.

The backend is `pretend`: everything but the processes of the jobs is real. Prints submissions per
second, decision latency and memory; `--jobs` and `--nodes` make it smaller.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rota.jobfile.model import JobFile, Resources
from rota.sdk import Client

BULK = 1000
SINGLES, TRIES = 100, 3  # the best try counts: machines are noisy


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


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if path.exists():
            return
        assert process.poll() is None, "the daemon ended"
        time.sleep(0.05)
    raise TimeoutError(path)


def submit_singly(rota: Client) -> float:
    """One request after the other; jobs per second."""
    began = time.perf_counter()
    for number in range(SINGLES):
        rota.submit(job(number))
    return SINGLES / (time.perf_counter() - began)


def measure(
    jobs: int, nodes: int, policy: str, state: Path, settle_s: float = 5.0
) -> dict[str, float]:
    command = [
        sys.executable, "-m", "rota.cli", "serve", "--backend", "pretend", "--policy", policy,
        "--nodes", f"{nodes}x8", "--listen", "127.0.0.1:0", "--state", str(state),
        "--log-level", "warning",
    ]  # fmt: skip
    os.environ["ROTA_STATE"] = str(state)
    process = subprocess.Popen(command)
    try:
        wait_for(state / "server.json", process)
        with Client() as rota:
            files = [job(number) for number in range(jobs)]
            began = time.perf_counter()
            for at in range(0, jobs, BULK):
                rota.submit_many(files[at : at + BULK])
            bulk = jobs / (time.perf_counter() - began)
            single = max(submit_singly(rota) for _ in range(TRIES))
            time.sleep(settle_s)
            status = rota.status()
        return {
            "bulk_jobs_per_s": bulk,
            "single_jobs_per_s": single,
            "decisions": status["decisions"],
            "decision_p50_ms": 1000 * status["decision_s"]["p50"],
            "decision_p99_ms": 1000 * status["decision_s"]["p99"],
            "commit_p99_ms": 1000 * status["commit_s"]["p99"],
            "memory_mib": memory_mib(process.pid),
            "pending": status["jobs"].get("PENDING", 0),
            "running": status["jobs"].get("RUNNING", 0),
        }
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--policy", default="tiresias")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.jobs, options.nodes, options.policy, Path(folder) / "state")
    for name, value in found.items():
        print(f"{name:20} {value:12.1f}")


if __name__ == "__main__":
    main()
