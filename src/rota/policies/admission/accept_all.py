"""Every job enters the queue at once: the admission of nearly every published scheduler."""

from rota.core.admission import Admission
from rota.core.jobs import Job
from rota.core.reasons import Reason
from rota.core.view import View


class AcceptAll(Admission):
    """Let everyone in."""

    name = "accept-all"
    trivial = True

    def consider(self, job: Job, view: View) -> Reason | None:  # noqa: ARG002 - no conditions
        """Always."""
        return None
