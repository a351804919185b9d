"""Quotas of Kueue in a replay, against arithmetic of our own: who waits, and until when."""

import json
from random import Random

import polars as pl
import pytest
from click.testing import CliRunner

from kueue_site import cluster_queue, cohort, local_queue, node, quota, workload
from rota.cli.explain import explain as explain_command
from rota.cli.replay import replay as replay_command
from rota.study.replay.replay import Asked, replay


class Site:
    """Queues of one cohort, as Kueue counts them: what each keeps, borrows and lends."""

    def __init__(self, rng):
        self.own = rng.choice([0, 0, 2])  # quota of the cohort itself
        self.queues = {}
        for name in "abc"[: rng.choice([2, 3])]:
            nominal = rng.choice([2, 3, 4])
            borrow = rng.choice([None, None, 0, 1, 2])
            lend = rng.choice([None, None, 0, 1])
            self.queues[name] = (nominal, borrow, lend)
        self.used = dict.fromkeys(self.queues, 0)

    @property
    def gpus(self):
        return self.own + sum(nominal for nominal, *_ in self.queues.values())

    def fits(self, name, gpus):
        """So many more are within what the queue keeps, and what the cohort has for it."""
        kept = {
            queue: 0 if lend is None else max(nominal - lend, 0)
            for queue, (nominal, _, lend) in self.queues.items()
        }
        lent = self.own + sum(self.queues[queue][0] - kept[queue] for queue in self.queues)
        taken = sum(max(self.used[queue] - kept[queue], 0) for queue in self.queues)
        nominal, borrow, _ = self.queues[name]
        if borrow is not None and self.used[name] + gpus > nominal + borrow:
            return False
        return gpus <= max(kept[name] - self.used[name], 0) + lent - taken

    def borrows(self, name, gpus):
        return self.used[name] + gpus > self.queues[name][0]


def admitted(site, jobs):
    """When each job is admitted: heads in turn, who does not borrow first, then the oldest."""
    waiting, running, starts = [], [], {}
    later = sorted(jobs, key=lambda job: job["at"])
    while later or waiting:
        times = [later[0]["at"]] if later else []
        now = min([*times, *(end for end, _ in running)], default=None)
        if now is None:
            return None  # somebody waits for ever
        for end, job in sorted(running, key=lambda one: one[0]):
            if end <= now:
                site.used[job["queue"]] -= job["gpus"]
        running = [one for one in running if one[0] > now]
        while later and later[0]["at"] <= now:
            waiting.append(later.pop(0))
        tried = set()
        while heads := _heads(waiting, tried):
            heads.sort(key=lambda job: (site.borrows(job["queue"], job["gpus"]), job["at"]))
            for job in heads:
                tried.add(job["name"])
                if site.fits(job["queue"], job["gpus"]):
                    site.used[job["queue"]] += job["gpus"]
                    starts[job["name"]] = now
                    running.append((now + job["runs"], job))
                    waiting.remove(job)
    return starts


def _heads(waiting, tried):
    heads = {}
    for job in waiting:
        if job["name"] not in tried:
            heads.setdefault(job["queue"], job)
    return list(heads.values())


def replayed(path, site, jobs, starts):
    default = {name: quota(*one) for name, one in site.queues.items()}
    objects = [
        node("n1", site.gpus),
        *(cluster_queue(name, "all", default=one) for name, one in default.items()),
        *(local_queue(f"of-{name}", name) for name in default),
        cohort("all", **({"default": quota(site.own)} if site.own else {})),
    ]
    for job in jobs:
        start = starts[job["name"]]
        objects.append(
            workload(
                job["name"], job["queue"], job["gpus"], created=job["at"], start=start,
                end=start + job["runs"],
            )
        )  # fmt: skip
    log = path / "kueue.json"
    log.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    out = path / "out"
    out.mkdir()
    return replay(Asked(log=str(log)), out, out, workers=1)


def drawn(seed):
    """A site where every job is admitted some day, and no two things happen at once."""
    rng = Random(seed)  # noqa: S311 - a test
    while True:
        site = Site(rng)
        times = rng.sample(range(0, 3000, 7), 12)
        jobs = [
            {
                "name": f"j{number}", "queue": rng.choice([*site.queues]), "at": at,
                "gpus": rng.choice([1, 1, 2, 3]), "runs": 211 + 300 * rng.random() // 1 + number,
            }
            for number, at in enumerate(times)
        ]  # fmt: skip
        for job in jobs:
            job["runs"] = int(job["runs"])
        if all(site.fits(job["queue"], job["gpus"]) for job in jobs):
            starts = admitted(site, jobs)
            return site, jobs, starts


def compare(tmp_path, seed):
    site, jobs, starts = drawn(seed)
    answer = replayed(tmp_path, site, jobs, starts)
    policy = answer.imported.queues.policy
    out = tmp_path / "out"
    (folder,) = (one for one in out.iterdir() if one.name.startswith("capacity"))
    frame = pl.read_csv(folder / "jobs.csv")
    first = min(job["at"] for job in jobs)
    found = {
        name.removeprefix("lab/"): start + first
        for name, start in frame.select("job_id", "first_start_s").iter_rows()
    }
    return starts, found, answer, policy, folder


def agrees(tmp_path, seed):
    starts, found, answer, policy, _ = compare(tmp_path, seed)
    assert policy == "capacity:preset=kueue,reclaim=no,within=no"
    assert found == starts
    assert answer.model.policy == policy or all(one.verdict == "close" for one in answer.fidelity)


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_admits_when_kueue_did(tmp_path, seed):
    agrees(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6, 200))
def test_many_replays_admit_when_kueue_did(tmp_path, seed):
    agrees(tmp_path, seed)


LEND = quota(4, lend=0)


def test_the_reason_is_the_quota_although_gpus_are_idle(tmp_path):
    objects = [
        node("n1", 8),
        cluster_queue("a", "all", default=quota(4)),
        cluster_queue("b", "all", default=LEND),
        workload("first", "a", 4, start=0, end=300),
        workload("second", "a", 1, created=10, start=300, end=400),
        workload("other", "b", 1, created=20, start=20, end=60),
    ]
    log = tmp_path / "kueue.json"
    log.write_text(json.dumps({"items": objects}))
    out = str(tmp_path / "out")
    said = CliRunner().invoke(replay_command, [str(log), "--policy", "capacity", "-o", out])
    assert said.exit_code == 0, said.output
    assert "not kept of Kueue: quotas of CPUs and memory" in " ".join(said.output.split())
    why = CliRunner().invoke(explain_command, [f"{out}/capacity", "lab/second"])
    assert "waited 4m 50s: 4m 50s because of a limit of its tenant, queue" in why.output
    plain = CliRunner().invoke(explain_command, [f"{out}/fifo", "lab/second"])
    assert "because of a limit" not in plain.output  # GPUs were idle all the time
