"""Ray Train in a job of Rota: a Ray of the job's own, on the GPUs that the job was given.

    rota submit --gpus 2 -- python examples/ray/train.py

A preempted job goes on from its last checkpoint: Train finds it in ROTA_CHECKPOINT_DIR.
"""

import os
import tempfile
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from ray.train.torch import TorchTrainer, prepare_model

EPOCHS = 5


def learn(config: dict[str, float]) -> None:
    """What each worker does: fit a line, and save after each epoch."""
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    first = 0
    if saved := get_checkpoint():
        with saved.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    for epoch in range(first, EPOCHS):
        loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            kept = None
            if get_context().get_world_rank() == 0:
                state = {"model": model.state_dict(), "epoch": epoch}
                torch.save(state, Path(folder) / "state.pt")
                kept = Checkpoint.from_directory(folder)
            report({"epoch": epoch, "loss": loss.item()}, checkpoint=kept)


if __name__ == "__main__":
    gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
    ray.init(address="local", num_gpus=gpus)  # not the Ray that runs this job: its GPUs are ours
    trainer = TorchTrainer(
        learn,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=gpus, use_gpu=torch.cuda.is_available()),
        run_config=RunConfig(name="train", storage_path=os.environ["ROTA_CHECKPOINT_DIR"]),
    )
    result = trainer.fit()
    print("done:", result.metrics)  # noqa: T201 - the output of the job
