"""All policies of the Gavel family, by class: tests need no registration."""

from rota.policies.allox import Allox
from rota.policies.gandiva_random import GandivaRandom
from rota.policies.gavel_fifo import GavelFifo
from rota.policies.gavel_ftf import GavelFtf
from rota.policies.gavel_isolated import GavelIsolated
from rota.policies.gavel_makespan import GavelMakespan
from rota.policies.gavel_max_min import GavelMaxMin
from rota.policies.gavel_max_sum import GavelMaxSum
from rota.policies.gavel_proportional import GavelProportional
from rota.policies.gavel_strategy_proof import GavelStrategyProof
from rota.policies.gavel_water_filling import GavelWaterFilling

FAMILY = {
    kind.name: kind
    for kind in (
        Allox,
        GandivaRandom,
        GavelFifo,
        GavelFtf,
        GavelIsolated,
        GavelMakespan,
        GavelMaxMin,
        GavelMaxSum,
        GavelProportional,
        GavelStrategyProof,
        GavelWaterFilling,
    )
}


def made(name, **params):
    """A policy with parameters."""
    kind = FAMILY[name]
    return kind(kind.Parameters(**params))
