"""Manifests of Kubernetes as jobs: Pod, Job, PyTorchJob, MPIJob, RayJob.

A job of Rota is equal processes, so all replicas must ask for the same. Pods with one GPU become
processes of a `per: gpu` job, larger ones a node each. Replicas of several roles (Master, Worker)
execute what their role says, by their rank. What is about pods and not about the job (volumes,
service accounts, probes, ...) is left out and named.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.core.kubernetes import TYPES, cpus_and_memory, gpus_of, unreadable
from rota.jobfile.documents import Translated, convert, entry_of, list_of, text_of
from rota.jobfile.model import JobFile, Resources
from rota.jobfile.quantities import shown

MARK = "apiVersion"
QUEUE_LABELS = ("rota.dev/queue", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue")
_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
_KNOWN = ("Pod", "Job", "PyTorchJob", "MPIJob", "RayJob")
_ORDER = ("Master", "Chief", "Launcher", "Worker")  # the first has rank 0
_MPIRUN = ("mpirun", "mpiexec", "horovodrun")
_MPI_FLAGS = frozenset(
    {"--allow-run-as-root", "--oversubscribe", "--verbose", "-v", "--tag-output"}
)
_MPI_TWO = frozenset(
    {
        "-x", "-np", "-n", "-c", "-H", "--host", "-hostfile", "--hostfile", "--bind-to",
        "-bind-to", "--map-by", "-map-by", "-N", "--npernode", "-npernode",
    }
)  # fmt: skip
_MPI_THREE = frozenset({"-mca", "--mca"})
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Role(msgspec.Struct, frozen=True):
    """Equal pods."""

    name: str
    replicas: int
    pod: dict[str, Any]  # its `spec`
    run: str
    gpus: float
    cpus: float
    mem_gib: float


class _PodManifest:
    """One object, and what of it is lost."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.kind = text_of(f"{where}: kind", content.get("kind", ""))
        self.metadata = entry_of(where, content, "metadata")
        self.spec = entry_of(where, content, "spec")
        self.warnings: list[str] = []

    def lost(self, what: str, why: str) -> None:
        """Say it once."""
        self.warnings.append(f"{self.where}: {what} left out: {why}")

    def whole(self, entry: Mapping[str, Any], key: str, default: int) -> int:
        """A whole number."""
        value = entry.get(key)
        number: int = default if value is None else convert(value, int, f"{self.where}: {key}")
        if number < 0:
            raise InputError(f"{self.where}: {key} is {number}: give 0 or more")
        return number

    @property
    def queue(self) -> str:
        """By the labels of Rota, Kueue, KAI and Volcano."""
        labels = entry_of(f"{self.where}: metadata", self.metadata, "labels")
        notes = entry_of(f"{self.where}: metadata", self.metadata, "annotations")
        for name in QUEUE_LABELS:
            if labels.get(name):
                return text_of(f"{self.where}: {name}", labels[name])
        return text_of(f"{self.where}: queue", notes.get(_QUEUE_ANNOTATION) or "")

    # --- pods -------------------------------------------------------------------------------------

    def role(self, name: str, replicas: int, template: Mapping[str, Any]) -> Role:
        """Of a template of pods."""
        place = f"{self.where}: {name}"
        pod = entry_of(place, template, "spec")
        container = self._container(pod, place)
        asked = entry_of(place, container, "resources")
        amounts = {**entry_of(place, asked, "requests"), **entry_of(place, asked, "limits")}
        for key in ("requests", "limits"):
            wrong = unreadable(entry_of(place, asked, key))
            if wrong:
                value = shown(asked[key][wrong])
                raise InputError(f"{place}: {key}: {wrong} is {value}: give an amount such as 2")
        cpus, mem_gib = cpus_and_memory({**amounts, **entry_of(place, asked, "requests")})
        words = [*list_of(place, container, "command"), *list_of(place, container, "args")]
        texts = [text_of(f"{place}: command", word) for word in words]
        return Role(name, replicas, pod, _as_shell(texts), gpus_of(amounts, "share"), cpus, mem_gib)

    def _container(self, pod: Mapping[str, Any], place: str) -> dict[str, Any]:
        entries = list_of(place, pod, "containers")
        containers = [entry for entry in entries if isinstance(entry, dict)]
        if not containers:
            raise InputError(f"{place}: has no containers: a pod needs one")
        with_gpus = [
            each for each in containers
            if gpus_of(entry_of(place, entry_of(place, each, "resources"), "limits"), "share")
        ]  # fmt: skip
        chosen = (with_gpus or containers)[0]
        for other in containers:
            if other is not chosen:
                self.lost(f"container {shown(other.get('name', ''))}", "a job is one command")
        return chosen

    def environment(self, role: Role) -> dict[str, str]:
        """Plain variables of the container."""
        container = self._container(role.pod, f"{self.where}: {role.name}")
        found = {}
        for entry in list_of(self.where, container, "env"):
            if not isinstance(entry, dict):
                raise InputError(f"{self.where}: env has {shown(entry)}: give a name and a value")
            name = text_of(f"{self.where}: env", entry.get("name", ""))
            if "valueFrom" in entry:
                self.lost(f"variable {name}", "it comes from elsewhere: use `rota secret set`")
            elif _ENV_NAME.fullmatch(name):
                found[name] = text_of(f"{self.where}: env: {name}", entry.get("value") or "")
        return found

    def note_pod(self, role: Role) -> None:
        """What of a pod has no counterpart."""
        container = self._container(role.pod, f"{self.where}: {role.name}")
        for entry, key, why in (
            (container, "envFrom", "name the variables, or use `rota secret set`"),
            (container, "volumeMounts", "put files where the nodes can read them"),
            (container, "lifecycle", "use checkpoint: pre_stop"),
            (role.pod, "initContainers", "use the key setup"),
            (role.pod, "affinity", "Rota's policy places the job"),
            (role.pod, "tolerations", "Rota's policy places the job"),
            (role.pod, "schedulerName", "Rota's policy places the job"),
            (role.pod, "serviceAccountName", "jobs have no account in the cluster"),
            (role.pod, "priorityClassName", "use the key priority or priority_class"),
        ):
            if entry.get(key):
                self.lost(f"{role.name}: {key}", why)
        selector = entry_of(self.where, role.pod, "nodeSelector")
        others = [str(key) for key in selector if key not in TYPES]
        if others:
            self.lost(f"{role.name}: nodeSelector {', '.join(others)}", "only GPU types are kept")

    def gpu_type(self, role: Role) -> str:
        """By the label of its nodes."""
        selector = entry_of(self.where, role.pod, "nodeSelector")
        return next((text_of(self.where, selector[key]) for key in TYPES if key in selector), "")

    # --- the job ----------------------------------------------------------------------------------

    def job(self, roles: Sequence[Role], run: str, **rest: Any) -> Translated:
        """Equal processes of these roles."""
        asked = {(role.gpus, role.cpus, role.mem_gib) for role in roles}
        if len(asked) > 1:
            raise InputError(
                f"{self.where}: {', '.join(role.name for role in roles)} ask for different "
                f"resources: give them equal ones, or submit a job for each"
            )
        first = roles[0]
        pods = sum(role.replicas for role in roles)
        if first.gpus < 1 and pods > 1:
            raise InputError(
                f"{self.where}: {pods} pods without a whole GPU have no places of their own: ask "
                f"for a GPU each, or submit a job for each"
            )
        each_gpu = first.gpus == 1 and pods > 1
        times = pods if each_gpu else 1
        container = self._container(first.pod, f"{self.where}: {first.name}")
        for role in roles:
            self.note_pod(role)
        images = [
            text_of(
                f"{self.where}: image", self._container(role.pod, self.where).get("image") or ""
            )
            for role in roles
        ]
        if len(set(images)) > 1:
            self.lost(f"images {', '.join(images[1:])}", f"all processes use {images[0]}")
        job = JobFile(
            run=run,
            name=text_of(f"{self.where}: name", self.metadata.get("name")
                         or self.metadata.get("generateName") or ""),
            workdir=text_of(f"{self.where}: workingDir", container.get("workingDir") or ""),
            envs=self.environment(first),
            resources=Resources(
                gpus=first.gpus * times,
                gpu_type=self.gpu_type(first),
                cpus=first.cpus * times,
                mem=first.mem_gib * times,
            ),
            nodes=1 if each_gpu else pods,
            per="gpu" if each_gpu else "node",
            queue=self.queue,
            image=images[0],
            **rest,
        )  # fmt: skip
        return Translated(job, tuple(dict.fromkeys(self.warnings)))

    def by_rank(self, roles: Sequence[Role]) -> str:
        """What a process executes, by the role that its rank belongs to."""
        for role in roles:
            if not role.run:
                raise InputError(
                    f"{self.where}: {role.name} has no command: write it, since what its image "
                    f"would execute is not known"
                )
        if len({role.run for role in roles}) == 1:
            return roles[0].run + "\n"
        lines, first = [], 0
        for number, role in enumerate(roles):
            first += role.replicas
            lines.append(f'{"elif" if number else "if"} [ "$RANK" -lt {first} ]; then')
            lines.append(role.run)
        return "\n".join([*lines, "fi"]) + "\n"

    def replicas(self, key: str) -> list[Role]:
        """The roles of a training job of Kubeflow, the one with rank 0 first."""
        entries = entry_of(self.where, self.spec, key)
        if not entries:
            raise InputError(f"{self.where}: spec has no {key}: describe the pods in it")
        names = sorted(entries, key=lambda name: (*(name != each for each in _ORDER), name))
        found = []
        for name in names:
            entry = entry_of(self.where, entries, name)
            template = entry_of(f"{self.where}: {name}", entry, "template")
            found.append(self.role(name, self.whole(entry, "replicas", 1), template))
        return [role for role in found if role.replicas]

    def policy(self) -> dict[str, Any]:
        """`runPolicy` of Kubeflow, or the keys of a batch Job: limits, retries, a hold."""
        policy = {**self.spec, **entry_of(self.where, self.spec, "runPolicy")}
        seconds = policy.get("activeDeadlineSeconds")
        return {
            "retries": self.whole(policy, "backoffLimit", 0),
            "time_limit": None if seconds is None else convert(
                seconds, float, f"{self.where}: activeDeadlineSeconds"
            ),
            "hold": convert(policy.get("suspend") or "false", bool, f"{self.where}: suspend"),
        }  # fmt: skip


def read_manifest(content: Any, where: str) -> Translated:
    """One object as a job."""
    found = _PodManifest(content, where)
    readers: dict[str, Callable[[_PodManifest], Translated]] = {
        "Pod": _pod, "Job": _batch, "PyTorchJob": _pytorch, "MPIJob": _mpi, "RayJob": _ray,
    }  # fmt: skip
    if found.kind not in readers:
        raise InputError(
            f"{where}: kind is {shown(found.kind)}: of Kubernetes' objects {', '.join(_KNOWN)} can "
            f"be read"
        )
    return readers[found.kind](found)


def _pod(found: _PodManifest) -> Translated:
    role = found.role("pod", 1, {"spec": found.spec})
    return found.job([role], found.by_rank([role]))


def _batch(found: _PodManifest) -> Translated:
    template = entry_of(found.where, found.spec, "template")
    role = found.role("pod", 1, template)
    completions = found.whole(found.spec, "completions", 1)
    parallel = found.whole(found.spec, "parallelism", 1)
    array = ""
    run = found.by_rank([role])
    if completions > 1:
        array = f"0-{completions - 1}" + (f"%{parallel}" if parallel < completions else "")
        run = f'export JOB_COMPLETION_INDEX="$ROTA_ARRAY_INDEX"\n{run}'
    return found.job([role], run, array=array, **found.policy())


def _pytorch(found: _PodManifest) -> Translated:
    roles = found.replicas("pytorchReplicaSpecs")
    if found.spec.get("nprocPerNode"):
        found.lost("nprocPerNode", "give it to torchrun in the command")
    if found.spec.get("elasticPolicy"):
        found.lost("elasticPolicy", "give resources: gpus: {min: 1, max: 8} instead")
    return found.job(roles, found.by_rank(roles), **found.policy())


def _mpi(found: _PodManifest) -> Translated:
    roles = {role.name: role for role in found.replicas("mpiReplicaSpecs")}
    launcher, worker = roles.get("Launcher"), roles.get("Worker")
    if launcher is None or worker is None:
        raise InputError(f"{found.where}: needs the roles Launcher and Worker: describe both")
    program = _without_mpirun(shlex.split(launcher.run))
    if not program:
        raise InputError(
            f"{found.where}: Launcher does not begin with {', '.join(_MPIRUN)}, so what its "
            f"processes execute is not known: write a job file of Rota with the key run"
        )
    found.lost(
        "mpirun", "Rota starts the processes itself, with RANK, WORLD_SIZE and MASTER_ADDR; a "
        "program that asks MPI for them sees one process",
    )  # fmt: skip
    slots = found.whole(found.spec, "slotsPerWorker", 1)
    whole = msgspec.structs.replace(worker, run=shlex.join(program))
    job = found.job([whole], shlex.join(program) + "\n", **found.policy())
    if slots > 1 and job.job.per == "node":
        job = msgspec.structs.replace(job, job=msgspec.structs.replace(job.job, per="gpu"))
    return job


def _without_mpirun(words: list[str]) -> list[str]:
    """The program and its arguments; empty: this is no call of mpirun."""
    if not words or words[0].rpartition("/")[2] not in _MPIRUN:
        return []
    at = 1
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word in _MPI_THREE:
            at += 3
        elif word in _MPI_TWO:
            at += 2
        elif word in _MPI_FLAGS or "=" in word:
            at += 1
        else:
            return []  # how many words belong to it?
    return words[at:]


def _ray(found: _PodManifest) -> Translated:
    entry = text_of(f"{found.where}: entrypoint", found.spec.get("entrypoint") or "")
    if not entry:
        raise InputError(f"{found.where}: spec has no entrypoint: write what the job executes")
    cluster = entry_of(found.where, found.spec, "rayClusterSpec")
    head = entry_of(found.where, cluster, "headGroupSpec")
    if not head:
        raise InputError(f"{found.where}: rayClusterSpec has no headGroupSpec: describe its pods")
    roles = [found.role("head", 1, entry_of(found.where, head, "template"))]
    for number, group in enumerate(list_of(found.where, cluster, "workerGroupSpecs")):
        name = text_of(f"{found.where}: groupName", group.get("groupName") or f"group {number}")
        template = entry_of(f"{found.where}: {name}", group, "template")
        replicas = found.whole(group, "replicas", 1)
        if replicas:
            roles.append(found.role(name, replicas, template))
        if group.get("maxReplicas") and found.whole(group, "maxReplicas", 0) != replicas:
            found.lost(f"{name}: maxReplicas", "Ray's autoscaler is not used")
    if found.spec.get("runtimeEnvYAML"):
        found.lost("runtimeEnvYAML", "give it to `ray.init`, or install it on the nodes")
    found.lost("Ray's dashboard", "the cluster of Ray lives as long as the job")
    return found.job(roles, _RAY_SCRIPT.format(entry=entry), **found.policy())


_RAY_SCRIPT = """\
export RAY_ADDRESS="$MASTER_ADDR:$MASTER_PORT"
if [ "$RANK" -gt 0 ]; then
    ray start --address="$RAY_ADDRESS" || exit
    while ray health-check --address "$RAY_ADDRESS" > /dev/null 2>&1; do sleep 5; done
    ray stop
    exit 0
fi
ray start --head --port="$MASTER_PORT" --include-dashboard=false || exit
( {entry} )
code=$?
ray stop
exit $code
"""


def _as_shell(words: list[str]) -> str:
    """A command as one would type it; `sh -c TEXT` is its text."""
    match words:
        case [shell, "-c" | "-lc", text] if shell.rpartition("/")[2] in ("sh", "bash"):
            return text.rstrip("\n")
    return shlex.join(words)
