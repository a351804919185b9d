"""Workloads like Philly's, for the recipes of its study: generated with seeds, and recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.reproduce.recipe import RecipeSetting, Scale
from rota.study.config import RunConfig
from rota.traces.synth.generate import generate

CLUSTER, GPUS = "16x8", 128
RECORDED = {
    Scale.SMALL: ("philly1000", "common/philly1000.csv", "48x8"),
    Scale.PAPER: ("philly5k", "common/philly5k.csv", "40x8"),
}


@dataclass(frozen=True, slots=True)
class PhillyLike:
    """What is drawn: seeds and numbers of jobs by scale, the load, the mix of sizes."""

    seeds: Mapping[Scale, Sequence[int]]
    jobs: Mapping[Scale, int]
    load: float
    sizes: str

    def runs(self, setting: RecipeSetting, policies: Mapping[str, str]) -> dict[str, RunConfig]:
        """Every seed, and the recorded jobs where they are at hand, under each of the policies."""
        inputs = {
            f"seed{seed}": (self._trace(setting, seed), CLUSTER)
            for seed in self.seeds[setting.scale]
        }
        name, path, cluster = RECORDED[setting.scale]
        recorded = setting.find(path)
        if recorded is not None:
            inputs[name] = (str(recorded), cluster)
        return {
            f"{label}-{place}": RunConfig(
                trace=trace, format="csv", cluster=machines, policy=policy, placement="best-fit"
            )
            for place, (trace, machines) in inputs.items()
            for label, policy in policies.items()
        }

    def _trace(self, setting: RecipeSetting, seed: int) -> str:
        options = {"max_s": "86400", "vcs": "4", "sizes": self.sizes, "even": "no"}
        workload = generate(
            "philly-like", jobs=self.jobs[setting.scale], gpus=GPUS, load=self.load, seed=seed,
            options=options,
        )  # fmt: skip
        return setting.keep(workload, f"philly-like-seed{seed}")
