"""What a policy declares that it reads; a job raises on anything undeclared."""

from enum import IntFlag


class Knowledge(IntFlag):
    """Facts beyond the request itself, from harmless to impossible in practice."""

    NOTHING = 0
    USER_ESTIMATE = 1  # run time as the user typed it
    HISTORY = 2  # records of finished jobs
    PROGRESS = 4  # share of the work that is done
    RATE = 8  # present speed of a running job
    DISTRIBUTION = 16  # distribution of service demands
    REMAINING_WORK = 32  # oracle: how long a job still needs
    FUTURE_ARRIVALS = 64  # offline bounds only
    SPEEDS = 128  # speed of a job on each GPU type
    SCALING = 256  # speed of a job by number of GPUs, and how long its steps took
    DEADLINES = 512  # when the user wants a job to be done

    def describe(self) -> str:
        """Human form, e.g. `user estimate, history`."""
        names = [
            (flag.name or "").lower().replace("_", " ")
            for flag in Knowledge
            if flag and flag in self
        ]
        return ", ".join(names) or "nothing"
