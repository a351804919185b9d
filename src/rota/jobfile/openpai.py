"""OpenPAI's job YAML, protocol version 2.

A job of Rota is equal processes, so all task roles must ask for the same; which commands a process
executes then depends on its rank: the instances of the first role come first. Instances with one
GPU become processes of a `per: gpu` job, larger ones a node each.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.jobfile.documents import Translated, check_keys, convert, entry_of, list_of, text_of
from rota.jobfile.model import JobFile, Resources
from rota.jobfile.quantities import shown

MARK = "protocolVersion"
_VERSION = "2"
_TOP = (
    MARK, "name", "type", "version", "contributor", "description", "parameters", "secrets",
    "prerequisites", "taskRoles", "deployments", "defaults", "extras", "jobRetryCount", "tags",
)  # fmt: skip
_ROLE = (
    "instances", "completion", "taskRetryCount", "dockerImage", "resourcePerInstance", "commands",
    "prerequisites", "data", "output", "script", "extraContainerOptions",
)  # fmt: skip
_PRIORITIES = {"crit": 120, "prod": 100, "test": 10, "oppo": -1}
_REFERENCE = re.compile(r"<%\s*(.*?)\s*%>", re.DOTALL)
_PARAMETER = re.compile(r"\$parameters\.([\w-]+)")
_IMAGE = "processes see the files of the node: name an image with `rota submit --image`"
_NOT_SET = re.compile(r"PAI_(?:PORT_LIST|HOST_IP|TASK_ROLE|USER|CONTAINER)\w*")
_ROLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,100}", re.ASCII)


class _Role(msgspec.Struct, frozen=True):
    name: str
    instances: int
    gpu: int
    cpu: float
    memory_mb: float
    lines: tuple[str, ...]
    retries: int


def read_openpai(content: Any, where: str) -> Translated:
    """One job."""
    check_keys(where, content, _TOP)
    version = text_of(f"{where}: {MARK}", content.get(MARK))
    if version != _VERSION:
        raise InputError(f"{where}: {MARK} is {shown(version)}: only version 2 can be read")
    if content.get("secrets"):
        raise InputError(
            f"{where}: secrets: a job file can be read by others: keep them in a file of your own"
        )
    warnings: list[str] = []
    roles = _roles(content, where, warnings)
    _check_equal(roles, where)
    first = roles[0]
    instances = sum(role.instances for role in roles)
    extras = entry_of(where, content, "extras")
    each_gpu = first.gpu == 1 and instances > 1
    times = instances if each_gpu else 1
    job = JobFile(
        run=_script(text_of(f"{where}: name", content.get("name", "")), roles),
        name=text_of(f"{where}: name", content.get("name", "")),
        resources=Resources(
            gpus=first.gpu * times, cpus=first.cpu * times, mem=first.memory_mb * times / 1024
        ),
        nodes=1 if each_gpu else instances,
        per="gpu" if each_gpu else "node",
        queue=text_of(
            f"{where}: virtualCluster",
            entry_of(where, content, "defaults").get("virtualCluster") or "",
        ),
        priority=_priority(extras, f"{where}: extras", warnings),
        retries=_retries(content, roles, where, warnings),
    )
    _note_rest(content, extras, where, warnings)
    return Translated(job, tuple(dict.fromkeys(warnings)))


def _roles(content: Mapping[str, Any], where: str, warnings: list[str]) -> list[_Role]:
    entries = entry_of(where, content, "taskRoles")
    if not entries:
        raise InputError(f"{where}: there is no key 'taskRoles': describe at least one role in it")
    parameters = {
        str(name): text_of(f"{where}: parameters: {shown(name)}", value)
        for name, value in entry_of(where, content, "parameters").items()
    }
    around = _deployment(content, where)
    roles = []
    for name, entry in entries.items():
        place = f"{where}: taskRoles: {shown(name)}"
        if not _ROLE_NAME.fullmatch(text_of(f"{where}: taskRoles", name)):
            raise InputError(f"{place}: give a name of letters, digits, - and _")
        check_keys(place, entry, _ROLE)
        lines = [
            *list_of(place, around.get(name, {}), "preCommands"),
            *list_of(place, entry, "commands"),
            *list_of(place, around.get(name, {}), "postCommands"),
        ]
        texts = tuple(_filled(text_of(f"{place}: commands", x), parameters, place) for x in lines)
        roles.append(_role(name, entry, texts, place))
        _note_role(entry, texts, place, warnings)
    return roles


def _deployment(content: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
    """Commands around those of the roles, of the deployment that `defaults` names."""
    chosen = entry_of(where, content, "defaults").get("deployment")
    if chosen is None:
        return {}
    for entry in list_of(where, content, "deployments"):
        place = f"{where}: deployments"
        check_keys(place, entry, ("name", "taskRoles"))
        if entry.get("name") == chosen:
            roles = entry_of(place, entry, "taskRoles")
            return {name: entry_of(place, roles, name) for name in roles}
    raise InputError(
        f"{where}: defaults: deployment is {shown(chosen)}: there is none of this name"
    )


def _role(name: str, entry: Mapping[str, Any], lines: tuple[str, ...], where: str) -> _Role:
    if not any(line.strip() for line in lines):
        raise InputError(f"{where}: commands is empty: write what the role executes")
    asked = entry_of(where, entry, "resourcePerInstance")
    check_keys(f"{where}: resourcePerInstance", asked, ("cpu", "memoryMB", "gpu", "ports"))

    def number(source: Mapping[str, Any], key: str, kind: type, default: float) -> Any:
        value = source.get(key)
        return default if value is None else convert(value, kind, f"{where}: {key}")

    instances = number(entry, "instances", int, 1)
    gpu = number(asked, "gpu", int, 0)
    if instances < 1:
        raise InputError(f"{where}: instances is {instances}: give 1 or more")
    return _Role(
        name, instances, gpu, number(asked, "cpu", float, 0.0),
        number(asked, "memoryMB", float, 0.0), lines, number(entry, "taskRetryCount", int, 0),
    )  # fmt: skip


def _check_equal(roles: list[_Role], where: str) -> None:
    asked = {(role.gpu, role.cpu, role.memory_mb) for role in roles}
    if len(asked) > 1:
        raise InputError(
            f"{where}: taskRoles {', '.join(role.name for role in roles)} ask for different "
            f"resources: give them equal ones, or submit a job for each"
        )
    if roles[0].gpu < 1 and sum(role.instances for role in roles) > 1:
        raise InputError(
            f"{where}: taskRoles: several instances without GPUs have no places of their own: "
            f"ask for a GPU each, or submit a job for each"
        )


def _filled(text: str, parameters: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        found = _PARAMETER.fullmatch(match[1])
        if found is None or found[1] not in parameters:
            known = ", ".join(parameters) or "none"
            raise InputError(
                f"{where}: commands: {shown(match[0])} cannot be filled: only "
                f"$parameters can, and they are: {known}"
            )
        return parameters[found[1]]

    return _REFERENCE.sub(value, text)


def _script(name: str, roles: list[_Role]) -> str:
    """The commands of the role to which a process belongs by its rank."""
    lines = [
        f"export PAI_JOB_NAME={shlex.quote(name)}",
        f'export PAI_HOST_IP_{roles[0].name.replace("-", "_")}_0="$MASTER_ADDR"',
    ]
    first = 0
    for number, role in enumerate(roles):
        block = [
            f"export PAI_CURRENT_TASK_ROLE_NAME={shlex.quote(role.name)}",
            f"export PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX=$((RANK - {first}))",
            *role.lines,
        ]
        first += role.instances
        if len(roles) > 1:
            word = "if" if number == 0 else "elif"
            lines.append(f'{word} [ "$RANK" -lt {first} ]; then')
        lines += block
    if len(roles) > 1:
        lines.append("fi")
    return "\n".join(lines) + "\n"


def _priority(extras: Mapping[str, Any], where: str, warnings: list[str]) -> int:
    hived = entry_of(where, extras, "hivedScheduler")
    chosen = hived.get("jobPriorityClass")
    if hived.keys() - {"jobPriorityClass"}:
        rest = ", ".join(str(key)[:40] for key in hived if key != "jobPriorityClass")
        warnings.append(f"{where}: hivedScheduler: {rest} left out: Rota's policy places the job")
    if chosen is None:
        return 0
    if chosen not in _PRIORITIES:
        raise InputError(
            f"{where}: hivedScheduler: jobPriorityClass is {shown(chosen)}: "
            f"known: {', '.join(_PRIORITIES)}"
        )
    warnings.append(
        f"{where}: hivedScheduler: jobPriorityClass {chosen} becomes priority "
        f"{_PRIORITIES[chosen]}: not every policy looks at it"
    )
    return _PRIORITIES[chosen]


def _retries(
    content: Mapping[str, Any], roles: list[_Role], where: str, warnings: list[str]
) -> int:
    given = content.get("jobRetryCount")
    retries: int = 0 if given is None else convert(given, int, f"{where}: jobRetryCount")
    tasks = max(role.retries for role in roles)
    if tasks:
        warnings.append(f"{where}: taskRetryCount: Rota repeats the whole job, not one task of it")
    if retries < 0 or tasks < 0:
        warnings.append(f"{where}: a retry count below 0 is read as 0")
    return max(retries, tasks, 0)


def _note_role(
    entry: Mapping[str, Any], lines: tuple[str, ...], where: str, warnings: list[str]
) -> None:
    """What of a role has no counterpart."""
    for key, why in (
        ("dockerImage", _IMAGE),
        ("prerequisites", "use the files of the node, or give an image: `rota submit --image`"),
        ("extraContainerOptions", "Rota has nothing like it"),
        ("data", "files are not fetched: put them where the nodes can read them"),
        ("script", "files are not fetched: put them where the nodes can read them"),
        ("output", "outputs are not collected: write them where you want them"),
        ("completion", "the job succeeds when every process does, and fails with the first"),
    ):
        if entry.get(key):
            warnings.append(f"{where}: {key} is left out: {why}")
    if entry_of(where, entry, "resourcePerInstance").get("ports"):
        warnings.append(f"{where}: ports are left out: use MASTER_PORT")
    names = sorted(set(_NOT_SET.findall("\n".join(lines))))
    if names:
        warnings.append(
            f"{where}: commands use {', '.join(names[:5])}: only the address of the first process "
            f"is known, as MASTER_ADDR and MASTER_PORT"
        )


def _note_rest(
    content: Mapping[str, Any], extras: Mapping[str, Any], where: str, warnings: list[str]
) -> None:
    if content.get("prerequisites"):
        warnings.append(f"{where}: prerequisites are left out: {_IMAGE}")
    if str(extras.get("gangAllocation", "true")).lower() == "false":
        warnings.append(
            f"{where}: extras: gangAllocation is left out: all processes start together"
        )
    rest = [key for key in extras if key not in ("gangAllocation", "hivedScheduler")]
    if rest:
        shown_keys = ", ".join(str(key)[:40] for key in rest)
        warnings.append(f"{where}: extras: {shown_keys} left out: Rota has nothing like it")
