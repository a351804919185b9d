"""Rota decides, Slurm executes.

`SlurmDriver` carries out runs as Slurm jobs on the nodes that Rota chose; `SlurmShadow` only
watches a Slurm and says what Rota would have done.
"""

from rota.live.drivers.slurm.driver import SlurmDriver
from rota.live.drivers.slurm.options import SlurmOptions
from rota.live.drivers.slurm.shadow import SlurmShadow

__all__ = ["SlurmDriver", "SlurmOptions", "SlurmShadow"]
