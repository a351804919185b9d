"""Rota decides, Ray executes."""

from rota.live.drivers.ray.driver import RayDriver
from rota.live.drivers.ray.options import RayOptions

__all__ = ["RayDriver", "RayOptions"]
