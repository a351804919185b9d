"""Scripts for Slurm: the `#SBATCH` lines become keys, the script is what is run.

What cannot be honoured is told, never dropped in silence. `sbatch_options` knows the options.
"""

import re
import shlex
from typing import NamedTuple

import msgspec

from rota.core.errors import InputError
from rota.jobfile.arrays import array_plan
from rota.jobfile.check import SIGNALS
from rota.jobfile.documents import Translated
from rota.jobfile.model import Checkpoint, JobFile, Resources
from rota.jobfile.quantities import memory_gib, shown, slurm_time_s

# Options: short names, those that take a value, and those without a counterpart.
SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output",
    "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe",
    "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip

HONOURED = (
    "array", "chdir", "cpus-per-task", "dependency", "export", "gpus", "gpus-per-node",
    "gpus-per-task", "gres", "job-name", "licenses", "mem", "mem-per-cpu", "mem-per-gpu", "nodes",
    "ntasks", "ntasks-per-node", "partition", "priority", "signal", "time",
)  # fmt: skip
FLAGS = ("hold", "requeue", "quiet", "verbose", "parsable")  # `requeue`: Rota always does

_PLACE = "Rota's placement chooses the nodes"
_LOGS = "output is kept by Rota: see `rota logs JOB`"
_MAIL = "write notify: mailto:NAME@HOST into a job file, or use --notify"
_ACCOUNT = "use --partition for the queue"
_CORES = "processes are not bound to cores"
_NONE = "Rota has nothing like it"

LEFT_OUT = {
    "account": _ACCOUNT, "qos": _ACCOUNT, "reservation": _ACCOUNT, "wckey": _ACCOUNT,
    "constraint": _PLACE, "nodelist": _PLACE, "exclude": _PLACE, "nodefile": _PLACE,
    "exclusive": "ask for all GPUs of a node instead", "oversubscribe": _PLACE,
    "contiguous": _PLACE, "switches": _PLACE, "spread-job": _PLACE, "use-min-nodes": _PLACE,
    "output": _LOGS, "error": _LOGS, "open-mode": _LOGS, "input": "processes have no input",
    "mail-type": _MAIL, "mail-user": _MAIL,
    "no-requeue": "what is preempted or loses its node is started again",
    "begin": "the job may start at once: use --hold and `rota release`",
    "deadline": "write a job file with `deadline`", "nice": "use --priority",
    "time-min": "use --time", "comment": _NONE, "clusters": _NONE,
    "no-kill": _NONE, "overcommit": _NONE, "wait": "use `rota submit --wait`",
    "distribution": _CORES, "core-spec": _CORES, "cpu-bind": _CORES, "gpu-bind": _CORES,
    "hint": _CORES, "threads-per-core": _CORES, "cores-per-socket": _CORES,
    "sockets-per-node": _CORES, "ntasks-per-core": _CORES, "ntasks-per-socket": _CORES,
    "ntasks-per-gpu": "use ntasks-per-node", "cpus-per-gpu": "use --cpus-per-task",
    "extra-node-info": _CORES, "mincpus": "use --cpus-per-task", "tmp": _NONE,
    "container": "a bundle is not an image: use `rota submit --image`", "propagate": _NONE,
    "profile": _NONE,
    "get-user-env": "your environment is not copied", "export-file": "write --export=NAME=VALUE",
    "gpu-freq": _NONE, "cpu-freq": _NONE, "power": _NONE, "reboot": _NONE, "bb": _NONE,
    "test-only": "use `rota submit --dry-run`", "kill-on-invalid-dep": _NONE, "uid": _NONE,
    "gid": _NONE, "wrap": "write the command into the script", "acctg-freq": _NONE,
}  # fmt: skip
_LEFT_OUT_FLAGS = (
    "contiguous", "spread-job", "use-min-nodes", "no-requeue", "overcommit", "wait", "reboot",
    "test-only", "no-kill", "exclusive", "oversubscribe", "get-user-env",
)  # fmt: skip

TAKES_VALUE = frozenset({*HONOURED, *LEFT_OUT} - {*_LEFT_OUT_FLAGS})

MARK = re.compile(r"^#SBATCH(?=\s|$)", re.MULTILINE)
_AFTER = {"afterok": "depends_on", "afterany": "after_any", "afternotok": "after_fail"}
_SIGNAL_S = 60  # Slurm's default when --signal names no time
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
_SET_FLAGS = re.compile(r"-[eux]+")


class _Options(NamedTuple):
    given: dict[str, str]
    where: str
    warnings: list[str]

    def count(self, key: str, default: int = 0) -> int:
        """A whole number, 1 or more."""
        text = self.given.get(key)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) < 1:
            raise InputError(f"{self.where}: --{key} is {shown(text)}: give a number above 0")
        return int(text)

    def warn(self, key: str, why: str) -> None:
        self.warnings.append(f"{self.where}: --{key}: {why}")


def read_sbatch(text: str, where: str) -> Translated:
    """The job of a script, which may be an array."""
    warnings: list[str] = []
    options = _Options(_directives(text, where, warnings), where, warnings)
    nodes = _nodes(options)
    gpus, gpu_type = _gpus(options, nodes)
    tasks = _tasks_per_node(options, nodes)
    cpus = float(tasks * options.count("cpus-per-task", 1)) if _counts_cpus(options) else 0.0
    job = JobFile(
        run=_script(text, where, warnings),
        name=options.given.get("job-name", ""),
        workdir=options.given.get("chdir", ""),
        envs=_exported(options),
        resources=Resources(
            gpus, gpu_type, cpus, _memory(options, cpus, gpus), kinds=_licences(options, nodes)
        ),
        nodes=nodes,
        queue=_queue(options),
        priority=_priority(options),
        time_limit=_time_limit(options),
        checkpoint=_checkpoint(options),
        hold="hold" in options.given,
        array=options.given.get("array", ""),
    )
    job = msgspec.structs.replace(job, **_dependencies(options))
    if job.array:
        array_plan(job.array, f"{where}: --array")
    _note_differences(text, options, nodes, tasks)
    return Translated(job, tuple(options.warnings))


# --- lines ---------------------------------------------------------------------------------------


def _directives(text: str, where: str, warnings: list[str]) -> dict[str, str]:
    """Options by long name. As for Slurm, a later one wins, and the first command ends them."""
    given: dict[str, str] = {}
    over = False
    for number, line in enumerate(text.splitlines(), 1):
        if MARK.match(line):
            if over:
                warnings.append(
                    f"{where}: line {number}: comes after the first command: it is left out, "
                    f"as Slurm does"
                )
                continue
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise InputError(
                    f"{where}: line {number} is {shown(line)}: {error}: close the quotes"
                ) from error
            given |= _pairs(words, f"{where}: line {number}")
        elif line.strip() and not line.startswith("#"):
            over = True
    for key in given:
        if key in LEFT_OUT:
            warnings.append(f"{where}: --{key} is left out: {LEFT_OUT[key]}")
        elif key not in TAKES_VALUE and key not in FLAGS:
            warnings.append(f"{where}: --{key} is left out: it is not known here")
    return given


def _pairs(words: list[str], where: str) -> dict[str, str]:
    """Values by long name; `--a=b`, `--a b`, `-a b`, `-ab` and `-a=b`."""
    pairs = {}
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            key, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            equals = "=" if value else ""
        else:
            raise InputError(f"{where}: {shown(word)} is not an option: write --option=value")
        if key in TAKES_VALUE and not equals:
            found = next(rest, None)
            if found is None:
                raise InputError(f"{where}: --{key} has no value: write --{key}=value")
            value = found
        pairs[key[:60]] = value
    return pairs


def _script(text: str, where: str, warnings: list[str]) -> str:
    first = text.split("\n", 1)[0]
    if not first.startswith("#!"):
        return text
    words = first[2:].split()
    names = [word.rsplit("/", 1)[-1] for word in words]
    if names[:1] == ["env"]:
        names, words = names[1:], words[1:]
    if not names or names[0] not in _SHELLS:
        raise InputError(
            f"{where}: line 1 is {shown(first)}: only shell scripts can be run: call the "
            f"interpreter from one"
        )
    flags = words[1:]
    if not flags:
        return text
    if all(_SET_FLAGS.fullmatch(flag) for flag in flags):
        return f"set {' '.join(flags)}\n{text}"
    warnings.append(f"{where}: line 1: {shown(' '.join(flags))} is left out: write it with `set`")
    return text


# --- what is asked -------------------------------------------------------------------------------


def _nodes(options: _Options) -> int:
    text = options.given.get("nodes", "1")
    match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
    if match is None or int(match[1]) < 1:
        raise InputError(f"{options.where}: --nodes is {shown(text)}: give a number above 0")
    if match[2] and int(match[2]) != int(match[1]):
        options.warn("nodes", f"of {text} nodes the job gets {match[1]}")
    return int(match[1])


def _gpus(options: _Options, nodes: int) -> tuple[int, str]:
    """GPUs per node and their type."""
    found: list[tuple[str, int, str]] = []
    if "gpus-per-node" in options.given:
        found.append(("gpus-per-node", *_typed(options, "gpus-per-node")))
    if "gres" in options.given:
        found += [("gres", count, kind) for count, kind in _gres(options)]
    if "gpus" in options.given:
        total, kind = _typed(options, "gpus")
        found.append(("gpus", _divided(options, "gpus", total, nodes), kind))
    if "gpus-per-task" in options.given:
        each, kind = _typed(options, "gpus-per-task")
        found.append(("gpus-per-task", each * _tasks_per_node(options, nodes), kind))
    if not found:
        return 0, ""
    if len({count for _, count, _ in found}) > 1:
        said = ", ".join(f"--{key} means {count}" for key, count, _ in found)
        raise InputError(f"{options.where}: {said} GPUs per node: give only one of them")
    return found[0][1], "|".join(dict.fromkeys(kind for _, _, kind in found if kind))


def _typed(options: _Options, key: str) -> tuple[int, str]:
    """`4` or `a100:4`."""
    kind, _, number = options.given[key].rpartition(":")
    if not re.fullmatch(r"[0-9]{1,6}", number):
        raise InputError(
            f"{options.where}: --{key} is {shown(options.given[key])}: write NUMBER or TYPE:NUMBER"
        )
    return int(number), kind


def _licences(options: _Options, nodes: int) -> dict[str, float]:
    """`matlab:2,ansys`: of the whole job, so that each node has its part."""
    found: dict[str, float] = {}
    for part in filter(None, options.given.get("licenses", "").split(",")):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)(?:[:=]([0-9]{1,9}))?\s*", part)
        if match is None:
            raise InputError(f"{options.where}: --licenses is {shown(part)}: write NAME:NUMBER")
        found[match[1]] = int(match[2] or 1) / nodes
    return found


def _gres(options: _Options) -> list[tuple[int, str]]:
    """`gpu`, `gpu:2`, `gpu:a100:2`, among others."""
    found = []
    for part in options.given["gres"].split(","):
        name, *rest = part.strip().split(":")
        if name != "gpu":
            options.warn("gres", f"{shown(part)} is left out: only GPUs are counted")
            continue
        number = rest.pop() if rest and rest[-1].isdecimal() else "1"
        if len(rest) > 1 or not re.fullmatch(r"[0-9]{1,6}", number):
            raise InputError(f"{options.where}: --gres is {shown(part)}: write gpu:TYPE:NUMBER")
        found.append((int(number), rest[0] if rest else ""))
    return found


def _divided(options: _Options, key: str, total: int, nodes: int) -> int:
    if total % nodes:
        raise InputError(
            f"{options.where}: --{key} is {total} on {nodes} nodes: give a multiple of {nodes}"
        )
    return total // nodes


def _tasks_per_node(options: _Options, nodes: int) -> int:
    each = options.count("ntasks-per-node")
    if each:
        return each
    return -(-options.count("ntasks", nodes) // nodes)


def _counts_cpus(options: _Options) -> bool:
    return any(key in options.given for key in ("cpus-per-task", "ntasks", "ntasks-per-node"))


def _memory(options: _Options, cpus: float, gpus: int) -> float:
    """GiB per node; Slurm's unit is the megabyte."""
    where = options.where
    total = 0.0
    for key, times in (("mem", 1.0), ("mem-per-cpu", cpus or 1.0), ("mem-per-gpu", float(gpus))):
        if key in options.given:
            amount = memory_gib(options.given[key], f"{where}: --{key}", unit="m")
            if key == "mem" and not amount:
                options.warn(
                    "mem", "0 means all of a node for Slurm: here it means none in advance"
                )
            total = max(total, amount * times)
    return total


def _queue(options: _Options) -> str:
    first, *others = options.given.get("partition", "").split(",")
    if others:
        options.warn("partition", f"of several only the first is used: {shown(first)}")
    return first.strip()


def _priority(options: _Options) -> int:
    text = options.given.get("priority", "0")
    if text.upper() == "TOP":
        return 1000
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise InputError(f"{options.where}: --priority is {shown(text)}: give a whole number")
    return int(text)


def _time_limit(options: _Options) -> float | None:
    if "time" not in options.given:
        return None
    return slurm_time_s(options.given["time"], f"{options.where}: --time")


def _checkpoint(options: _Options) -> Checkpoint:
    text = options.given.get("signal")
    if text is None:
        return Checkpoint()
    match = re.fullmatch(r"(?:[RB]{1,2}:)?(?:SIG)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", text.upper())
    if match is None:
        raise InputError(f"{options.where}: --signal is {shown(text)}: write TERM@SECONDS")
    before_s = float(match[2] or _SIGNAL_S)
    if match[1] in SIGNALS and match[1] != "TERM":  # so long before the time limit
        return Checkpoint(warn_s=before_s, warn_signal=match[1])
    if match[1] not in ("TERM", "15"):
        options.warn("signal", f"Rota sends SIGTERM, not {match[1]}: trap that one")
    return Checkpoint(grace_s=before_s)


def _dependencies(options: _Options) -> dict[str, tuple[str, ...]]:
    text = options.given.get("dependency", "")
    found: dict[str, list[str]] = {}
    for part in filter(None, text.split(",")):
        kind, *ids = part.split(":")
        if kind not in _AFTER or not ids or not all(ids) or "?" in part or "+" in part:
            raise InputError(
                f"{options.where}: --dependency is {shown(part)}: only afterok:JOB[:JOB...], "
                f"afterany and afternotok can be kept"
            )
        found.setdefault(_AFTER[kind], []).extend(ids)
    return {key: tuple(jobs) for key, jobs in found.items()}


def _exported(options: _Options) -> dict[str, str]:
    envs = {}
    for part in filter(None, options.given.get("export", "").split(",")):
        name, equals, value = part.partition("=")
        if equals:
            envs[name] = value
        elif name.upper() not in ("NONE", "NIL"):
            options.warn(
                "export",
                f"{shown(name)}: your environment is not copied: write NAME=VALUE for each",
            )
    return envs


# --- what differs --------------------------------------------------------------------------------


def _note_differences(text: str, options: _Options, nodes: int, tasks: int) -> None:
    where, warnings = options.where, options.warnings
    if nodes > 1:
        warnings.append(
            f"{where}: the script is started on each of its {nodes} nodes; Slurm starts it on the "
            f"first only"
        )
    if tasks > 1:
        warnings.append(
            f"{where}: {tasks} tasks per node count its CPUs; the script is started once per node"
        )
    if re.search(r"^\s*(?:exec\s+)?srun\b", text, re.MULTILINE):
        warnings.append(f"{where}: the script calls srun, which needs Slurm on the node")
    used = sorted(set(re.findall(r"\bSLURM_(?!ARRAY_)[A-Z_]+", text)))
    if used:
        warnings.append(
            f"{where}: the script uses {', '.join(used[:8])}: outside Slurm use RANK, WORLD_SIZE, "
            f"NODE_RANK, ROTA_JOB_ID, ROTA_RESTART_COUNT"
        )
