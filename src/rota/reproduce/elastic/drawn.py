"""Jobs that train, drawn: profiles of a few made-up applications, and a workload of them.

Both are files in the layout of Sia's simulator, so that they are read as its own are. A step takes
(gradients^g + synchronisation^g)^(1/g) seconds, as in Pollux' model; how noisy gradients are, and
so how large a batch may be, grows along the training.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from rota.models.profiles import MeasuredTraining, digits_of

GPU_TYPE = "gpu"
NODES, NODE_GPUS = 4, 4
EPOCHS = 10
BATCHES = (128, 256, 512, 1024, 2048)
"""Samples of a step, all GPUs together."""
LOCAL_BATCHES = (8, 32, 128, 512)
"""Samples of a step on one GPU that were measured."""
USER_LOCAL = 64
"""A user gives each GPU so many samples."""
SIZES = {1: 0.4, 2: 0.25, 4: 0.25, 8: 0.1}
"""GPUs that users ask for, and how often."""
TIGHT = (1.2, 3.0)
"""A deadline is so many times the run time after the job was submitted."""
OVERLAP = 1.6  # of gradients and synchronisation: 1 not at all


class DrawnApplication(msgspec.Struct, frozen=True):
    """What is made up of an application.

    Attributes:
        steps: Of the smallest batch, in one epoch.
        fixed_s: Of a step, without any sample.
        sample_s: For each sample on a GPU.
        near_s: To synchronise within a node, and more for each GPU beyond two.
        far_s: The same between nodes.
        noise: Variance of gradients over their squared norm, at first and in the end.
        share: Of all jobs.
    """

    steps: int
    fixed_s: float
    sample_s: float
    near_s: tuple[float, float]
    far_s: tuple[float, float]
    noise: tuple[float, float]
    share: float

    def step(self, placement: Sequence[int], batch: int) -> tuple[float, float]:
        """Seconds of a step with so many samples on each GPU; and those of waiting in it."""
        gpus, alone_s = sum(placement), self.fixed_s + self.sample_s * batch
        if gpus == 1:
            return alone_s, 0.0
        base_s, more_s = self.near_s if len(placement) == 1 else self.far_s
        sync_s = base_s + more_s * (gpus - 2)
        step_s = (alone_s**OVERLAP + sync_s**OVERLAP) ** (1 / OVERLAP)
        return step_s, step_s - alone_s


APPLICATIONS: Mapping[str, DrawnApplication] = {
    "brief": DrawnApplication(300, 0.02, 5e-4, (0.01, 0.002), (0.04, 0.006), (1, 8), 0.45),
    "dense": DrawnApplication(1500, 0.02, 8e-4, (0.01, 0.001), (0.03, 0.003), (2, 30), 0.3),
    "wordy": DrawnApplication(2500, 0.03, 6e-4, (0.04, 0.004), (0.15, 0.012), (4, 40), 0.15),
    "heavy": DrawnApplication(6000, 0.03, 9e-4, (0.01, 0.001), (0.03, 0.002), (4, 60), 0.1),
}


def write_profiles(folder: Path) -> Path:
    """Profiles of all applications, on any GPUs of the cluster."""
    per_node = range(1, NODE_GPUS + 1)
    placements = {
        digits_of(gpus) for nodes in range(1, NODES + 1) for gpus in product(per_node, repeat=nodes)
    }
    for name, application in APPLICATIONS.items():
        into = folder / name
        into.mkdir(parents=True, exist_ok=True)
        rows = ["placement,local_bsz,step_time,sync_time"]
        for digits in sorted(placements, key=lambda digits: (len(digits), digits)):
            for batch in LOCAL_BATCHES:
                step_s, sync_s = application.step([int(digit) for digit in digits], batch)
                rows.append(f"{digits},{batch},{step_s:.9g},{sync_s:.9g}")
        _write(into / f"placements-{GPU_TYPE}.csv", rows)
        for batch in BATCHES:
            _write(into / f"validation-{batch}.csv", _epochs(application, batch))
    return folder


def _epochs(application: DrawnApplication, batch: int) -> list[str]:
    rows = ["progress,iteration,grad_sqr,grad_var"]
    noises, iterations = np.geomspace(*application.noise, EPOCHS).tolist(), 0.0
    for epoch, noise in enumerate(noises):
        gain = (noise + 1) / (noise * BATCHES[0] / batch + 1)
        iterations += application.steps / gain
        rows.append(f"{application.steps * (epoch + 1)},{iterations:.9g},1,{noise:.9g}")
    return rows


def write_jobs(path: Path, profiles: Path, *, jobs: int, load: float, seed: int) -> str:
    """So many jobs that ask for so many times what the cluster has, as long as they come."""
    draw = np.random.default_rng([seed, jobs])
    shares = [application.share for application in APPLICATIONS.values()]
    names = draw.choice(list(APPLICATIONS), jobs, p=shares).tolist()
    sizes = draw.choice(list(SIZES), jobs, p=list(SIZES.values())).tolist()
    batches = [max(BATCHES[0], USER_LOCAL * size) for size in sizes]
    asked = list(zip(names, sizes, batches, strict=True))
    mean_gpu_s = np.mean([size * alone_s(profiles, *each) for each in asked for size in [each[1]]])
    gaps_s = draw.exponential(mean_gpu_s / (load * NODES * NODE_GPUS), jobs)
    rows = [
        [f"{name}-{number}", int(at_s), name, size, batch]
        for number, ((name, size, batch), at_s) in enumerate(
            zip(asked, np.cumsum(gaps_s) - gaps_s[0], strict=True)
        )
    ]
    return write_due(path, rows, profiles, GPU_TYPE, seed)


def write_due(
    path: Path, rows: Sequence[Sequence[object]], profiles: Path, gpu_type: str, seed: int
) -> str:
    """Jobs (name, time, application, GPUs, batch) with a drawn deadline each; the file."""
    draw = np.random.default_rng([seed, len(rows), 1])
    lines = ["name,time,application,num_replicas,batch_size,deadline_s"]
    for row, slack in zip(rows, draw.uniform(*TIGHT, len(rows)).tolist(), strict=True):
        _, at_s, name, size, batch = map(str, row)
        due_s = float(at_s) + slack * alone_s(profiles, name, int(size), int(batch), gpu_type)
        lines.append(",".join([*map(str, row), str(round(due_s))]))
    _write(path, lines)
    return str(path)


def alone_s(
    profiles: Path, application: str, gpus: int, batch: int, gpu_type: str = GPU_TYPE
) -> float:
    """The run time of a job with what it asks for."""
    training = MeasuredTraining(str(profiles), application, batch, tuned=False)
    return training.alone_s(gpus, gpu_type)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
