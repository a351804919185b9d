"""Submit the jobs of a workload csv to a daemon, each at its time, and wait until all are over.

Every job is `work.py` with the costs of `work.yaml`; how long it works is the `duration_s` of the
csv, which is also the estimate that policies are told.
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import yaml

from rota.sdk import Client

HERE = Path(__file__).resolve().parent


def jobs_of(trace: Path) -> list[tuple[float, dict[str, object]]]:
    """Read (seconds, job) in the order of time."""
    template = yaml.safe_load((HERE / "work.yaml").read_text("utf-8"))
    found = []
    with trace.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            job = template | {
                "name": row["job_id"],
                "workdir": str(HERE),
                "run": template["run"].replace("30", row["duration_s"]),
                "resources": {"gpus": int(row["num_gpus"])},
                "estimate": float(row["duration_s"]),
            }
            found.append((float(row["submit_s"]), job))
    return sorted(found, key=lambda pair: pair[0])


def main() -> None:
    """Submit, wait, and fail if a job did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many jobs")
    options = parser.parse_args()
    with Client() as rota:
        began_s = time.monotonic()
        ids = []
        for submit_s, job in jobs_of(options.trace)[: options.limit]:
            time.sleep(max(0.0, began_s + submit_s - time.monotonic()))
            ids.append(rota.submit(job).id)
        ends = [rota.wait(job) for job in ids]
    failed = [f"job {end.id} ({end.name}) {end.state}: {end.message}" for end in ends
              if end.state != "SUCCEEDED"]  # fmt: skip
    print(f"{len(ends)} jobs in {time.monotonic() - began_s:.1f} s")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
