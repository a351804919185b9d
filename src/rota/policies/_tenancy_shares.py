"""Fair shares of a tree: what every branch would have if GPUs could be divided at will."""

from collections.abc import Sequence

from rota.core.events import INF
from rota.policies._tenancy import Branch


def entitle(root: Branch, up_gpus: float) -> None:
    """Set `entitled` of all branches.

    At every level each gets its quota or, if that is less, what it can use; the rest goes by weight
    to those that can use more.
    """
    _divide(root, up_gpus)


def _divide(above: Branch, gpus: float) -> None:
    branches = above.children
    if not branches:
        return
    wanted = [_wanted(branch) for branch in branches]
    shares = [min(branch.quota, most) for branch, most in zip(branches, wanted, strict=True)]
    promised = sum(shares)
    if promised > gpus:
        shares = [share * gpus / promised for share in shares]
    else:
        weights = [branch.tenant.weight for branch in branches]
        shares = pour(gpus - promised, weights, shares, wanted)
    for branch, share in zip(branches, shares, strict=True):
        branch.entitled = share
        _divide(branch, share)


def _wanted(branch: Branch) -> float:
    """What guaranteed jobs of a branch have and ask for, as far as it may be had."""
    asked = sum(map(_wanted, branch.children)) if branch.children else branch.firm + branch.asked
    return min(asked, branch.tenant.limit)


def pour(
    amount: float, weights: Sequence[float], have: Sequence[float], most: Sequence[float]
) -> list[float]:
    """Divide an amount by weight on top of what everybody has; nobody gets more than the most."""
    found = list(have)
    order = sorted(range(len(found)), key=lambda i: (most[i] - have[i]) / weights[i])
    total = sum(weights[i] for i in order if most[i] > have[i])
    for i in order:
        if most[i] <= have[i]:
            continue
        part = min(amount * weights[i] / total if total else INF, most[i] - have[i])
        found[i] += part
        amount -= part
        total -= weights[i]
    return found
