"""Names that tests of FGD need, whether or not this installation has registered them yet."""

from importlib.metadata import EntryPoint

from rota.core import registry

PLACEMENTS = {
    "fgd": "rota.placement.fgd:Fgd",
    "dot-product": "rota.placement.dot_product:DotProduct",
    "gpu-packing": "rota.placement.gpu_packing:GpuPacking",
    "gpu-clustering": "rota.placement.gpu_clustering:GpuClustering",
    "kubernetes": "rota.placement.kubernetes:Kubernetes",
}
ADDED = {
    registry.PLACEMENTS: PLACEMENTS,
    registry.DIALECTS: {"fgd": "rota.dialects.fgd:FgdDialect"},
    registry.FORMATS: {"openb": "rota.traces.openb:FORMAT"},
    registry.RECIPES: {"fgd-alloc": "rota.experiments.reproduce.fgd:RECIPE"},
}


def register(monkeypatch):
    """Let the registry know them for the time of a test."""
    before = registry._entries

    def entries(group):
        added = ADDED.get(group, {})
        return {
            **{name: EntryPoint(name, where, group) for name, where in added.items()},
            **before(group),
        }

    monkeypatch.setattr(registry, "_entries", entries)
