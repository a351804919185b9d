"""Settings of the Ray backend."""

import msgspec


class RayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Rota uses a Ray cluster.

    The daemon runs on a machine of the cluster. Nodes are those that have GPUs; Rota calls them as
    Ray does (`ray start --node-name`).
    """

    address: str = "auto"  # HOST:PORT of its head; auto: that of this machine
    python: str = ""  # the interpreter with the Ray of the cluster; empty: Rota's own
    folder: str = ""  # on each node, for files of jobs; empty: one in /tmp
    poll_s: float = 1.0  # between looks at Ray
    timeout_s: float = 60.0  # of a single request
