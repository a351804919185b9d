"""What the jobs of a machine use: processors and memory by /proc, GPUs by `nvidia-smi` and DCGM.

Jobs that may use a part of the memory of a GPU are looked at by process, and told if they use more.

`nvidia-smi` does not know how busy every GPU is (one that is divided, for instance): those are read
from DCGM, by `dcgmi dmon` where it is installed. With the address of a DCGM exporter that is read
instead of both.
"""

import logging
import os
import re
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rota.core.efficiency import IDLE
from rota.core.errors import OptionError
from rota.core.sums import ordered_sum
from rota.live.agent import shim
from rota.live.agent.health import HealthAnswer, ask
from rota.live.agent.messages import PartKey, PartUsage

log = logging.getLogger("rota.agent")

TICK_S = 1.0
FIRST_S, EVERY_S = 1.0, 10.0  # a run is looked at after a second, then more and more seldom
ASK_S = 10.0  # the longest that `nvidia-smi` may take
TICKS, PAGE_GIB = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE") / 2**30
GPUS = ("--query-gpu=index,uuid,utilization.gpu", "--format=csv,noheader,nounits")
FIELDS = 3
APPS = ("--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader,nounits")
ROUNDING_GIB = 1 / 1024  # `nvidia-smi` tells MiB
DMON = ("dmon", "-e", "203,1001", "-c", "1")  # GPU_UTIL in percent, GR_ENGINE_ACTIVE from 0 to 1
LONGEST = 8 << 20  # bytes of what an exporter tells
_METRIC = re.compile(
    r"^(?P<name>DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_GR_ENGINE_ACTIVE)"
    r"\{(?P<labels>[^}]*)\}\s+(?P<value>[0-9.eE+-]+)",
    re.MULTILINE | re.ASCII,
)
_LABEL = re.compile(r'(gpu|UUID|GPU_I_ID)="([^"]*)"')


class MeasuredPart(NamedTuple):
    """A part that runs: the process of its shim, and its GPUs as CUDA_VISIBLE_DEVICES has them."""

    key: PartKey
    pid: int
    devices: Sequence[str]
    gpu_mem_gib: float = 0.0  # that it may use of each of them; 0: nobody said


class _Seen(NamedTuple):
    at_s: float
    cpu_s: float
    pause_s: float


def process_table(root: Path = Path("/proc")) -> dict[int, tuple[int, float, float]]:
    """Parent, processor seconds (with those of children that are gone) and GiB of every process."""
    found = {}
    for entry in root.iterdir():
        if not entry.name.isdigit():
            continue
        fields = shim.read(str(entry / "stat")).rpartition(")")[2].split()
        if fields:
            cpu_s = sum(map(int, fields[11:15])) / TICKS
            found[int(entry.name)] = (int(fields[1]), cpu_s, int(fields[21]) * PAGE_GIB)
    return found


def below(pid: int, table: Mapping[int, tuple[int, float, float]]) -> list[int]:
    """Everybody below a process."""
    children: dict[int, list[int]] = {}
    for each, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(each)
    found = list(children.get(pid, ()))
    for each in found:  # which grows
        found += children.get(each, ())
    return found


def used_below(pid: int, table: Mapping[int, tuple[int, float, float]]) -> tuple[float, float]:
    """Processor seconds and GiB of everybody below a process; of itself only who has gone."""
    everybody = below(pid, table)
    own_s = table[pid][1] if pid in table else 0.0
    return own_s + ordered_sum(table[each][1] for each in everybody), ordered_sum(
        table[p][2] for p in everybody
    )


def gpu_memory(text: str) -> dict[int, dict[str, float]]:
    """GiB that each process has of each GPU, by the UUIDs of those."""
    found: dict[int, dict[str, float]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        mib = _number(fields[2]) if len(fields) == FIELDS and fields[0].isdigit() else None
        if mib is not None:
            has = found.setdefault(int(fields[0]), {})
            has[fields[1]] = has.get(fields[1], 0.0) + mib / 1024
    return found


def gpu_shares(text: str) -> dict[str, float]:
    """For how much of the time each GPU was busy lately, by index and by UUID."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == FIELDS and fields[2].replace(".", "", 1).isdigit():
            found[fields[0]] = found[fields[1]] = min(1.0, float(fields[2]) / 100)
    return found


def dcgm_shares(text: str) -> dict[str, float]:
    """The same from the table of `dcgmi dmon`, by index: engine activity, else utilisation."""
    found = {}
    for line in text.splitlines():
        kind, *fields = line.split() or [""]
        if kind != "GPU" or len(fields) != FIELDS or not fields[0].isdigit():
            continue
        percent, active = map(_number, fields[1:])
        if active is None and percent is not None:
            active = percent / 100
        if active is not None:
            found[fields[0]] = min(1.0, max(0.0, active))
    return found


def exporter_shares(text: str) -> dict[str, float]:
    """The same from a DCGM exporter, by index and by UUID; of a divided GPU its busiest part."""
    known: dict[str, dict[str, float]] = {}
    for match in _METRIC.finditer(text):
        value = _number(match["value"])
        if value is None:
            continue
        of_percent = match["name"].endswith("UTIL")
        share = min(1.0, max(0.0, value / 100 if of_percent else value))
        labels = dict(_LABEL.findall(match["labels"]))
        values = known.setdefault(match["name"], {})
        for key in (labels.get("gpu", ""), labels.get("UUID", "")):
            if key:
                values[key] = max(share, values.get(key, 0.0))
    plain = known.get("DCGM_FI_DEV_GPU_UTIL", {})
    return {**plain, **known.get("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {})}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) < LONGEST else None  # noqa: PLR0124 - not NaN


def fetch(url: str, timeout_s: float) -> str:
    """What an exporter tells; empty: nothing."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - checked before
            text: bytes = answer.read(LONGEST)
    except (OSError, ValueError) as error:
        log.warning("usage.exporter", extra={"url": url, "why": str(error)})
        return ""
    return text.decode(errors="replace")


def checked_exporter(url: str) -> str:
    """The address of an exporter, or nothing.

    Raises:
        OptionError: It is none.
    """
    if url and not url.startswith(("http://", "https://")):
        raise OptionError(
            f"DCGM exporter {url!r}: write its address, e.g. http://localhost:9400/metrics"
        )
    return url


class UsageWatch:
    """Looks at what runs, in a thread of its own, and tells what it uses."""

    def __init__(
        self,
        running: Callable[[], list[MeasuredPart]],
        tell: Callable[[list[PartUsage]], None],
        asks: Callable[[Sequence[str], float], HealthAnswer] = ask,
        clock: Callable[[], float] = time.monotonic,
        *,
        exporter: str = "",
        fetches: Callable[[str, float], str] = fetch,
        exceeded: Callable[[PartKey, float], None] | None = None,
    ) -> None:
        self._exporter, self._fetches, self._exceeded = exporter, fetches, exceeded
        self._running, self._tell, self._asks, self._clock = running, tell, asks, clock
        self._seen: dict[PartKey, _Seen] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rota-usage", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(TICK_S):
            try:
                self.look()
            except Exception:  # numbers are good to have, jobs matter more
                log.exception("usage.failed")

    def look(self) -> None:
        """Measure those whose turn it is."""
        running = self._running()
        now_s = self._clock()
        self._seen = {p.key: self._seen[p.key] for p in running if p.key in self._seen}
        due = [p for p in running if self._is_due(p.key, now_s)]
        if not due:
            return
        table = process_table()
        gpus = self._gpus({device for part in due for device in part.devices})
        told = []
        for part in due:
            cpu_s, mem_gib = used_below(part.pid, table)
            before = self._seen.get(part.key)
            pause_s = FIRST_S if before is None else min(2 * before.pause_s, EVERY_S)
            self._seen[part.key] = _Seen(now_s, cpu_s, pause_s)
            if before is not None:
                cpus = max(0.0, cpu_s - before.cpu_s) / max(now_s - before.at_s, 1e-3)
                shares = [gpus[device] for device in part.devices if device in gpus]
                busy = ordered_sum(shares) / len(shares) if shares else None
                idle = float(sum(share < IDLE for share in shares)) if shares else None
                told.append(PartUsage(part.key.run, part.key.node_rank, cpus, mem_gib, busy, idle))
        if told:
            self._tell(told)
        self._watch_memory([part for part in due if part.gpu_mem_gib], table)

    def _watch_memory(
        self, parts: Sequence[MeasuredPart], table: Mapping[int, tuple[int, float, float]]
    ) -> None:
        """Tell of those who use more of a GPU than they may."""
        if not parts or self._exceeded is None or shutil.which("nvidia-smi") is None:
            return
        said = self._asks(["nvidia-smi", *APPS], ASK_S)
        has = gpu_memory(said.text) if said.code == 0 else {}
        for part in parts:
            on_gpus: dict[str, float] = {}
            for pid in below(part.pid, table):
                for gpu, gib in has.get(pid, {}).items():
                    on_gpus[gpu] = on_gpus.get(gpu, 0.0) + gib
            most = max(on_gpus.values(), default=0.0)
            if most > part.gpu_mem_gib + ROUNDING_GIB:
                self._exceeded(part.key, most)

    def _is_due(self, key: PartKey, now_s: float) -> bool:
        seen = self._seen.get(key)
        return seen is None or now_s >= seen.at_s + seen.pause_s

    def _gpus(self, wanted: Collection[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        if not wanted:
            return found
        if self._exporter:
            return exporter_shares(self._fetches(self._exporter, ASK_S))
        if shutil.which("nvidia-smi") is not None:
            said = self._asks(["nvidia-smi", *GPUS], ASK_S)
            found = gpu_shares(said.text) if said.code == 0 else {}
        if not found.keys() >= set(wanted) and shutil.which("dcgmi") is not None:
            said = self._asks(["dcgmi", *DMON], ASK_S)
            found = {**(dcgm_shares(said.text) if said.code == 0 else {}), **found}
        return found
