"""Ray Tune in a job of Rota: a Ray of the job's own, on the GPUs that the job was given.

    rota submit --gpus 2 -- python examples/ray/tune.py

A preempted job goes on with the trials that were not done.
"""

import os
from pathlib import Path

import ray
from ray import tune

FOLDER = Path(os.environ["ROTA_CHECKPOINT_DIR"])


def trial(config: dict[str, float]) -> dict[str, float]:
    """One GPU, one rate: the squared distance after ten steps down a parabola."""
    x = 3.0
    for _ in range(10):
        x -= config["lr"] * 2 * x
    return {"distance": x * x}


if __name__ == "__main__":
    gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    ray.init(address="local", num_gpus=gpus)  # not the Ray that runs this job: its GPUs are ours
    trainable = tune.with_resources(trial, {"gpu": 1})
    if tune.Tuner.can_restore(FOLDER / "tune"):
        tuner = tune.Tuner.restore(str(FOLDER / "tune"), trainable)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={"lr": tune.grid_search([0.01, 0.1, 0.3, 0.45])},
            tune_config=tune.TuneConfig(metric="distance", mode="min"),
            run_config=tune.RunConfig(name="tune", storage_path=str(FOLDER)),
        )
    best = tuner.fit().get_best_result()
    print("best rate:", best.config["lr"])  # noqa: T201 - the output of the job
