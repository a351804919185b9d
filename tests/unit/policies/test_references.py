"""End times of published simulators, job by job where they mean the same by a policy."""

import csv

import pytest

from policy_runs import engine, finish, job
from rota.core.policy import PriorityPolicy
from rota.policies.elas import Elas
from rota.policies.fifo import Fifo
from rota.policies.fifo_skip import FifoSkip
from rota.policies.gittins import Gittins
from rota.policies.las import Las
from rota.policies.qssf import Qssf
from rota.policies.sjf import Sjf, SjfParams
from rota.policies.smallest import Smallest
from rota.policies.srsf import Srsf
from rota.policies.srtf import Srtf
from rota.policies.tiresias import Tiresias, TiresiasParams

# the 1,000 jobs, the reference table of each run, its column of end times
JOBS = "reference/common/philly1000.csv"
TIRESIAS = "reference/tiresias/philly1000_n48g8/{}-count.csv", "end_time"
HELIOS = "reference/helios/philly1000/{}_jobs.csv", "end_s"


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(jobs, policy, placement):
    """Return submission and end of every job, by index."""
    jobs = [
        job(row["job_id"], float(row["submit_s"]), int(row["num_gpus"]), float(row["duration_s"]))
        for row in jobs
    ]
    log = finish(engine(policy, jobs, nodes=48, gpus=8, placement=placement))
    done = log.filter(log["event"] == "done")
    submitted = {index: spec.submit_s for index, (spec, _) in enumerate(jobs)}
    return submitted, dict(zip(done["job"].to_list(), done["time_s"].to_list(), strict=True))


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
    _, ours = run(table(shared(JOBS)), policy, placement)
    pattern, column = source
    theirs = {int(row["job_id"]): float(row[column]) for row in table(shared(pattern.format(name)))}
    assert ours == theirs


@pytest.mark.parametrize(
    ("policy", "placement", "mean_s"),
    [
        (Las(), "count", 15709.90),
        (Tiresias(), "count", 15642.56),
        (Tiresias(TiresiasParams(promote=8)), "count", 15642.53),
        (Gittins(), "count", 15577.69),
        (Elas(), "count", 15685.37),
        (Qssf(), "consolidate", 15850.06),
    ],
    ids=lambda value: value.name if isinstance(value, PriorityPolicy) else None,
)
def test_the_mean_completion_time_is_that_of_the_policys_page(shared, policy, placement, mean_s):
    submitted, ended = run(table(shared(JOBS)), policy, placement)
    found = sum(ended[index] - submitted[index] for index in ended) / len(ended)
    assert found == pytest.approx(mean_s, abs=0.01)
