"""Jobs as processes of this machine."""

from rota.backends.local.cluster import LocalCluster

__all__ = ["LocalCluster"]
