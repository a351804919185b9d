"""`check_policy` and `check_cluster`: what every policy and every cluster must do.

No test file is needed to get these checks for a policy of one's own:

    from rota.testing import check_policy
    check_policy("my_policy.py")       # a file, a registered name, a class, or a function

The first check that fails raises `CheckFailed` with the scenario that shows it; otherwise the
report names what was checked and what did not apply.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rota.core.policy import Policy
from rota.core.registry import POLICIES, names, split
from rota.engine.parts import make_policy
from rota.testing.policy_checks import CHECKS
from rota.testing.report import CheckFailed, Report, run_checks
from rota.testing.subject import Subject

__all__ = ["CheckFailed", "Report", "check_policy"]

Maker = Callable[[], Policy[Any]]


def check_policy(
    policy: str | Maker | type[Policy[Any]],
    *,
    seeds: Sequence[int] = range(8),
    scale_free: bool | None = None,
    work_conserving: bool | None = None,
    only: str = "",
) -> Report:
    """Run all checks on a policy.

    Args:
        policy: As of `--policy` (`name:key=value,...` or a Python file), a class that needs no
            arguments, or a function that makes one.
        seeds: Random workloads to try; each takes some milliseconds per check.
        scale_free: It has no constants in seconds, so that twice the times give twice the JCTs.
            None: it is tried if the policy has no parameters.
        work_conserving: No GPU idles while a one-GPU job waits. None: tried for priority policies
            that are not strict.
        only: Only checks whose name contains this.

    Raises:
        CheckFailed: A check failed.
    """
    make: Maker
    if isinstance(policy, str):
        text = policy

        def make() -> Policy[Any]:
            return make_policy(text)

    else:
        make = policy
    registered = isinstance(policy, str) and split(policy)[0] in names(POLICIES)
    subject = Subject(
        make=make,
        name=split(str(policy))[0] if registered else make().name,
        seeds=tuple(seeds),
        scale_free=scale_free,
        work_conserving=work_conserving,
    )
    chosen = [check for check in CHECKS if only in check.__name__]
    return run_checks(f"policy {subject.name}", chosen, subject)
