"""What only one test at a time may have on this machine: ports and networks.

A claim is an abstract socket of that name: the kernel gives it to one process only, and takes it
back when the process ends, however it ends.
"""

import atexit
import contextlib
import socket
from itertools import islice
from pathlib import Path

LOWEST = 30_000  # above those that jobs get as MASTER_PORT (`rota.live.runs`)
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_held = []


@atexit.register
def _release():
    for claim in _held:
        claim.close()


def claim(name):
    """Have a name until this process ends; False if another one, or this one, has it already."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(f"\0rota-tests-{name}")
    except OSError:
        made.close()
        return False
    _held.append(made)
    return True


def claimed_ports(count):
    """Ports for servers that are started later, and perhaps again.

    They are below those that the kernel gives to whoever asks for any port: nobody gets them by
    chance while their server is away.
    """
    above = int(RANGE.read_text().split()[0])
    free = (port for port in range(LOWEST, above) if _is_free(port) and claim(f"port-{port}"))
    ports = list(islice(free, count))
    assert len(ports) == count, f"no {count} ports are free between {LOWEST} and {above}"
    return ports


def _is_free(port):
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
