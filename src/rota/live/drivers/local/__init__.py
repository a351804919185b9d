"""Jobs as processes of this machine."""

from rota.live.drivers.local.cluster import LocalCluster

__all__ = ["LocalCluster"]
