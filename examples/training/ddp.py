"""PyTorch DDP under Rota: can be preempted at any moment, and resized between its runs.

One process per rank (`per: gpu` in the job file), gloo on CPUs. SIGTERM reaches the ranks at
different moments, so they agree at every step whether this one is the last; rank 0 then saves, and
all leave. The next run goes on from there.

Which samples a step uses depends on the step and on `--batch` (that of all ranks together), never
on the number of ranks: each rank takes its share of the same batch. Therefore

- with the same number of ranks in every run, the final parameters are bit by bit those of a run
  that was never interrupted (same machine type, same PyTorch, same number of threads);
- with other numbers of ranks (they must divide the batch) the same samples are used in the same
  steps, and the parameters are equal up to the order in which floating-point numbers are added.
"""

import argparse
import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rota import job

FEATURES = 32
SAMPLES = 1024


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small network.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=48, help="samples per step, of all ranks")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--step-s", type=float, default=0.0, help="make every step so much longer")
    return parser.parse_args()


def dataset() -> tuple[torch.Tensor, torch.Tensor]:
    """Make the same samples on every rank, in every run."""
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    return inputs, inputs.sin().sum(dim=1, keepdim=True)


def share(step: int, batch: int) -> torch.Tensor:
    """Choose this rank's share of the samples of a step."""
    steps_per_epoch = SAMPLES // batch
    epoch, position = divmod(step, steps_per_epoch)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
    mine = batch // dist.get_world_size()
    begin = position * batch + dist.get_rank() * mine
    return order[begin : begin + mine]


def everywhere(*, stop: bool) -> bool:
    """Say whether any rank wants to stop: all ranks get the same answer at the same step."""
    flag = torch.tensor([float(stop)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return flag.item() > 0


class Training:
    """A network, its optimiser, and how far they are."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(0)
        layers = (nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
        self.model = nn.Sequential(*layers)
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.inputs, self.targets = dataset()
        self.batch = batch
        self.step = 0

    def resume(self) -> None:
        """Go on where the last run stopped, if there was one."""
        state = job.load_torch()
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        """Keep the state: rank 0 writes, the others wait for it."""
        if dist.get_rank() == 0:
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
            }
            job.save_torch(state, step=self.step)
        dist.barrier()

    def advance(self) -> torch.Tensor:
        """Take one step; the loss on this rank's share."""
        chosen = share(self.step, self.batch)
        loss = nn.functional.mse_loss(self.parallel(self.inputs[chosen]), self.targets[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def digest(self) -> str:
        """Name the parameters: equal digests mean equal bits."""
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return digest.hexdigest()[:16]


def train(training: Training, options: argparse.Namespace) -> bool:
    """Train until all steps are done (True) or the job is to stop (False)."""
    first = training.step
    began_s = time.monotonic()
    while training.step < options.steps:
        loss = training.advance()
        time.sleep(options.step_s)
        speed = (training.step - first) * options.batch / (time.monotonic() - began_s)
        job.report(step=training.step, loss=loss, throughput=speed)
        if everywhere(stop=job.should_stop()):
            return False
        if training.step % options.save_every == 0:
            training.save()
    return True


def main() -> None:
    """Train; leave early when asked to."""
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if options.batch % ranks or not 0 < options.batch <= SAMPLES:
        sys.exit(f"--batch {options.batch} must be a multiple of {ranks} ranks, up to {SAMPLES}")
    training = Training(options.batch)
    training.resume()
    restarts = job.info().restart_count
    print(f"rank {rank} of {ranks} begins at step {training.step}, restart {restarts}", flush=True)
    job.install()  # until here SIGTERM just ends the process: there is nothing to save
    done = train(training, options)
    training.save()  # also at the end: whoever is stopped right now will be started once more
    if rank == 0:
        word = "done" if done else "stopped"
        print(f"{word} at step {training.step}, parameters {training.digest()}", flush=True)
    dist.destroy_process_group()
    if not done:
        job.exit_for_restart()


if __name__ == "__main__":
    main()
