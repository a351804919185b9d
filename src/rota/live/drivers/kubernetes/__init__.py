"""Rota decides, Kubernetes executes."""

from rota.live.drivers.kubernetes.driver import KubernetesDriver
from rota.live.drivers.kubernetes.options import KubernetesOptions

__all__ = ["KubernetesDriver", "KubernetesOptions"]
