"""End times of published simulators, job by job, where they mean the same by a policy."""

import csv

import pytest

from policy_runs import engine, finish, job
from rota.policies.fifo import Fifo
from rota.policies.fifo_skip import FifoSkip
from rota.policies.sjf import Sjf, SjfParams
from rota.policies.smallest import Smallest
from rota.policies.srsf import Srsf
from rota.policies.srtf import Srtf

# the 1,000 jobs, the reference table of each run, its column of end times
JOBS = "reference/common/philly1000.csv"
TIRESIAS = "reference/tiresias/philly1000_n48g8/{}-count.csv", "end_time"
HELIOS = "reference/helios/philly1000/{}_jobs.csv", "end_s"


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("policy", "placement", "source", "name"),
    [
        (Fifo(), "count", TIRESIAS, "fifo"),
        (FifoSkip(), "count", TIRESIAS, "fjf"),
        (Smallest(), "count", TIRESIAS, "sjf"),
        (Srtf(), "count", TIRESIAS, "shortest"),
        (Srsf(), "count", TIRESIAS, "shortest-gpu"),
        (Fifo(), "consolidate", HELIOS, "fifo"),
        (Sjf(SjfParams(strict=True)), "consolidate", HELIOS, "sjf"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_every_job_ends_when_it_ends_in_the_reference(shared, policy, placement, source, name):
    jobs = [
        job(row["job_id"], float(row["submit_s"]), int(row["num_gpus"]), float(row["duration_s"]))
        for row in table(shared(JOBS))
    ]
    log = finish(engine(policy, jobs, nodes=48, gpus=8, placement=placement))
    done = log.filter(log["event"] == "done")
    ours = dict(zip(done["job"].to_list(), done["time_s"].to_list(), strict=True))
    pattern, column = source
    theirs = {int(row["job_id"]): float(row[column]) for row in table(shared(pattern.format(name)))}
    assert ours == theirs
