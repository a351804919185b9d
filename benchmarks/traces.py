"""How fast a CSV job table is imported, and in how much memory: a Helios-shaped file is generated.

    python benchmarks/traces.py [ROWS] [sorted]     # default 3,000,000; one core

Prints rows per second of CPU and the peak of resident memory. The rows are in no order of time
unless `sorted` is given: they have to be sorted then, which needs more memory.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")

HEADER = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
STATES = ("COMPLETED", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
BLOCK = 50_000
PRIME = 1_299_709


def write_table(path: Path, rows: int, *, by_time: bool) -> None:
    """Jobs of half a year; written in blocks, so that the memory measured is the reader's."""
    epoch_s = 1_585_699_200
    step = 1 if by_time else PRIME
    with path.open("w") as file:
        file.write(HEADER + "\n")
        for first in range(0, rows, BLOCK):
            file.write(
                "".join(
                    row(n, epoch_s + n * step % rows * 5)
                    for n in range(first, min(rows, first + BLOCK))
                )
            )


def row(number: int, submit_s: int) -> str:
    queue_s, duration_s = number % 977, 1 + number * 7919 % 86_400
    gpus = (0, 1, 1, 2, 4, 8)[number % 6]
    times = (submit_s, submit_s + queue_s, submit_s + queue_s + duration_s)
    texts = ",".join(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) for at in times)
    return (
        f"{number},u{number % 313},vc{number % 29},{gpus},{4 + gpus * 6},{1 + gpus // 9},"
        f"{STATES[number % 5]},{texts},{duration_s},{queue_s}\n"
    )


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "sorted"]
    rows = int(words[0].replace(",", "")) if words else 3_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster_log.csv"
        write_table(path, rows, by_time="sorted" in sys.argv[1:])
        from rota.traces.formats.helios import FORMAT

        begun_s = time.process_time()
        imported = FORMAT.load(path, {})
        used_s = time.process_time() - begun_s
        assert len(imported) == rows
    # not ru_maxrss: a new process takes over the peak of the one that started it
    status = Path("/proc/self/status").read_text()
    peak_mib = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(
        f"{rows:,} rows in {used_s:.2f} CPU-seconds: {rows / used_s:,.0f} rows/s, "
        f"peak {peak_mib:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
