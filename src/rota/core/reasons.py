"""Why a job waits: one list for the simulator, the daemon, explanations and tables."""

from enum import IntEnum


class Reason(IntEnum):
    """The numbers are part of the log's schema: append, never renumber."""

    NONE = 0
    ORDER = 1  # others first
    CAPACITY = 2  # fewer free than asked
    FRAGMENTATION = 3  # enough free, but no placement
    QUOTA = 4  # a limit of its tenant, queue, QOS or user is reached
    GANG = 5  # part of it could start
    CONSTRAINT = 6  # enough free, but not of the kind that it requires (GPU type, label, memory)
    ADMISSION = 7  # held before the queue
    DEPENDENCY = 8  # waits for another job
    OVERHEAD = 9  # being started, stopped or moved
    DOWN = 10  # its nodes failed
    UNKNOWN = 11  # the log that a schedule comes from does not tell
    BACKOFF = 12  # it failed, and is tried again after a while
    ARRAY = 13  # as many of its array are in the queue or run as may be at once
    MAINTENANCE = 14  # it would not end before nodes that it needs are taken out of use
    RESERVED = 15  # it would not end before nodes that it needs are another's
    MEMORY = 16  # enough GPUs are free for it, but not enough of their memory

    @property
    def label(self) -> str:
        """Name used in files and tables."""
        return self.name.lower()
