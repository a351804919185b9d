"""Rota decides, Slurm executes.

`SlurmDriver` carries out runs as Slurm jobs on the nodes that Rota chose; `Shadow` only watches a
Slurm and says what Rota would have done.
"""

from rota.backends.slurm.driver import SlurmDriver
from rota.backends.slurm.options import SlurmOptions
from rota.backends.slurm.shadow import Shadow

__all__ = ["Shadow", "SlurmDriver", "SlurmOptions"]
