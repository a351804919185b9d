"""What Slurm's own texts say about scheduling, as values of `params`.

- `read_conf`: `slurm.conf`, or what `scontrol show config` and `scontrol show partition` print.
- `read_qos`: what `sacctmgr show qos --parsable2` prints.
- `read_assoc`: what `sacctmgr show assoc --parsable2` prints (`tree`, or with ParentName).
- `read_settings`: the parameters themselves, as YAML.

They read texts, not files. Settings that would change the schedule and are not modelled are named
in `not_modelled`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.core.yaml_text import YAMLError, read_yaml

Values = dict[str, Any]

_PAIR = re.compile(r"(\S+?)\s*=\s*(\"[^\"]*\"|\S+)")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.\d+)?")
_NEVER = ("UNLIMITED", "INFINITE", "INFINITY", "NONE", "-1", "N/A")
_EMPTY = ("", "(null)", "NONE", "N/A", "none")
_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE)
_GIB = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}
_TRES = {"cpu": "cpu", "node": "node", "gres/gpu": "gpu"}
_MODES = ("off", "requeue", "cancel")


# --- words ---------------------------------------------------------------------------------------


def seconds(text: str, where: str) -> float:
    """Of `30` (minutes), `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM:SS`, `UNLIMITED`."""
    if text.upper() in _NEVER:
        return INF
    match = _TIME.fullmatch(text)
    if match is None:
        raise OptionError(f"{where}={text} is not a time: write minutes or D-HH:MM:SS")
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1]:
        return days * 86_400.0 + first * 3_600 + second * 60 + third
    if match[4]:
        return first * 3_600.0 + second * 60 + third
    return first * 60.0 + second


def number(text: str, where: str) -> float:
    """A number that is at least 0."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < INF:
        raise OptionError(f"{where}={text} is not a number: give one that is at least 0")
    return found


def names(text: str) -> list[str]:
    """Of a list with commas; none for ALL."""
    if text in _EMPTY or text.upper() == "ALL":
        return []
    return [part.strip() for part in text.split(",") if part.strip()]


def tres(text: str, where: str, ignored: list[str], *, missing: float) -> dict[str, float]:
    """Amounts of `cpu=8,mem=64G,gres/gpu=4,node=2`; `missing`: for those not given.

    Of weights the memory counts per unit: `mem=0.25G` is 0.25 per GiB.
    """
    found = dict.fromkeys(("cpu", "mem_gib", "node", "gpu"), missing)
    for part in names(text):
        name, _, value = part.partition("=")
        match = _AMOUNT.fullmatch(value.strip())
        if match is None:
            raise OptionError(f"{where}: {part} is not understood: write NAME=NUMBER")
        amount = float(match[1])
        if amount < 0:
            continue  # no limit
        kind = name.strip().lower()
        if kind in _TRES:
            found[_TRES[kind]] = amount
        elif kind == "mem":
            scale = _GIB[match[2].upper()]
            found["mem_gib"] = amount * scale if missing else amount / scale
        else:
            ignored.append(f"{where}: {part}")
    return found


# --- slurm.conf ----------------------------------------------------------------------------------

_WEIGHTS = {
    "priorityweightage": "weight_age",
    "priorityweightfairshare": "weight_fairshare",
    "priorityweightjobsize": "weight_job_size",
    "priorityweightpartition": "weight_partition",
    "priorityweightqos": "weight_qos",
    "fairsharedampeningfactor": "dampening",
}
_TIMES = {
    "prioritymaxage": "max_age_s",
    "prioritycalcperiod": "calc_period_s",
}
_COUNTS = {
    "default_queue_depth": ("queue_depth", 1),
    "bf_interval": ("bf_interval_s", 1),
    "bf_window": ("bf_window_s", 60),
    "bf_resolution": ("bf_resolution_s", 1),
    "bf_max_job_test": ("bf_max_job_test", 1),
    "bf_max_job_part": ("bf_max_job_part", 1),
    "bf_max_job_user": ("bf_max_job_user", 1),
    "bf_max_job_start": ("bf_max_job_start", 1),
}
"""Options of SchedulerParameters, and their unit."""
_PACE = (
    "batch_sched_delay", "bf_continue", "bf_max_time", "bf_yield_interval", "bf_yield_sleep",
    "bf_yield_rpc_cnt", "build_queue_timeout", "default_gbytes", "kill_invalid_depend",
    "max_rpc_cnt", "max_sched_time", "nohold_on_prolog_fail", "sched_interval",
    "sched_min_interval", "sched_max_job_start", "max_depend_depth", "max_switch_wait",
    "salloc_wait_nodes", "sbatch_wait_nodes", "enable_user_top", "max_array_tasks",
    "requeue_setup_env_fail", "reduce_completing_frag",
)  # fmt: skip
"""Options about how quickly slurmctld works, or about jobs before they wait: of no effect here."""
_OTHER_PREEMPTION = {"preemptmode", "preempttype", "preemptexempttime", "preemptparameters"}
_NEUTRAL = {
    "priorityweightassoc": ("0",),
    "prioritysitefactorplugin": (*_EMPTY, "site_factor/none"),
    "priorityusageresetperiod": _EMPTY,
    "topologyplugin": (*_EMPTY, "topology/default", "topology/none", "topology/flat"),
    "selecttype": ("select/cons_tres", "select/cons_res"),
    "overtimelimit": ("0", "0 min"),
    "licenses": _EMPTY,
    "jobrequeue": ("1",),
    "suspendtime": ("-1", "0", "INFINITE", "NONE", *_EMPTY),
    "burstbuffertype": _EMPTY,
    "jobsubmitplugins": _EMPTY,
    "mcsplugin": (*_EMPTY, "mcs/none"),
}
"""Other settings that matter to a schedule, and the values with which they do not."""
_PARTITION_NEUTRAL = {
    "oversubscribe": ("NO", "EXCLUSIVE:NO"),
    "shared": ("NO",),
    "exclusiveuser": ("NO",),
    "rootonly": ("NO",),
    "lln": ("NO",),
    "reqresv": ("NO",),
    "gracetime": ("0",),
    "overtimelimit": ("NONE", "0"),
    "minnodes": ("0", "1"),
    "maxcpuspernode": ("UNLIMITED",),
    "maxcpuspersocket": ("UNLIMITED",),
    "maxmempernode": ("UNLIMITED",),
    "maxmempercpu": ("UNLIMITED",),
    "allowgroups": ("ALL",),
    "alternate": _EMPTY,
    "state": ("UP",),
    "selecttypeparameters": _EMPTY,
}


def read_conf(text: str) -> Values:
    """Values of `slurm.conf`."""
    settings, partitions, ignored = _entries(text)
    if not settings and not partitions:
        raise OptionError("has no line KEY=VALUE: give slurm.conf or `scontrol show config`")
    found: Values = {}
    for key, (name, value) in settings.items():
        if key in _WEIGHTS:
            found[_WEIGHTS[key]] = number(value, name)
        elif key in _TIMES:
            found[_TIMES[key]] = seconds(value.removesuffix(" min"), name)
        elif key in _NEUTRAL and value not in _NEUTRAL[key]:
            ignored.append(f"{name}={value}")
    found |= _priority(settings, ignored)
    found |= _scheduler(settings, ignored)
    found |= _preemption(settings, ignored)
    if partitions:
        found["partitions"] = [_partition(one, ignored) for one in partitions]
    if "accountingstorageenforce" in settings or "clustername" in settings:
        words = names(settings.get("accountingstorageenforce", ("", ""))[1].lower())
        found["enforce_limits"] = bool({"limits", "safe", "all"} & set(words)) or "1" in words
    if ignored:
        found["not_modelled"] = ignored
    return found


def _entries(text: str) -> tuple[dict[str, tuple[str, str]], list[dict[str, str]], list[str]]:
    """Settings by key in lower case, lines of partitions, and what cannot be followed."""
    settings: dict[str, tuple[str, str]] = {}
    partitions: list[dict[str, str]] = []
    default: dict[str, str] = {}
    ignored: list[str] = []
    current: dict[str, str] | None = None
    for raw in re.sub(r"\\\s*\n", " ", text).splitlines():
        line = raw.partition("#")[0].rstrip()
        pairs = [(key, value.strip('"')) for key, value in _PAIR.findall(line)]
        first = pairs[0][0].lower() if pairs else ""
        if first == "partitionname":
            current = {key.lower(): value for key, value in pairs}
            if current["partitionname"].upper() == "DEFAULT":
                default |= current
                current = default
            else:
                current = {**default, **current}
                partitions.append(current)
        elif line[:1].isspace() and current is not None:  # as `scontrol show partition` prints it
            current.update((key.lower(), value) for key, value in pairs)
        elif line.lower().startswith("include "):
            ignored.append(line)
        elif len(pairs) >= 1 and not first.startswith(("nodename", "downnodes", "frontendname")):
            key, _, value = line.partition("=")
            settings[key.strip().lower()] = (key.strip(), value.strip().strip('"'))
            current = None
        else:
            current = None
    return settings, partitions, ignored


def _text(settings: Mapping[str, tuple[str, str]], key: str) -> str:
    value = settings.get(key, ("", ""))[1]
    return "" if value in _EMPTY else value


def _priority(settings: Mapping[str, tuple[str, str]], ignored: list[str]) -> Values:
    found: Values = {}
    if _text(settings, "prioritytype") == "priority/basic":
        found |= dict.fromkeys((*_WEIGHTS.values(),), 0.0) | {"dampening": 1.0}
    half = _text(settings, "prioritydecayhalflife")
    if half:
        length_s = seconds(half, "PriorityDecayHalfLife")
        found["half_life_s"] = 0.0 if length_s == INF else length_s
    if "priorityfavorsmall" in settings:
        found["favor_small"] = _text(settings, "priorityfavorsmall").upper() in ("YES", "1", "TRUE")
    weights = _text(settings, "priorityweighttres")
    if weights:
        found["weight_tres"] = tres(weights, "PriorityWeightTRES", ignored, missing=0.0)
    for flag in names(_text(settings, "priorityflags").upper()):
        if flag == "NO_FAIR_TREE":
            found["fair_tree"] = False
        elif flag != "FAIR_TREE":
            ignored.append(f"PriorityFlags={flag}")
    return found


def _scheduler(settings: Mapping[str, tuple[str, str]], ignored: list[str]) -> Values:
    found: Values = {}
    kind = _text(settings, "schedulertype")
    if kind:
        found["backfill"] = kind == "sched/backfill"
        if kind not in ("sched/backfill", "sched/builtin"):
            ignored.append(f"SchedulerType={kind}")
    for option in names(_text(settings, "schedulerparameters")):
        name, _, value = option.partition("=")
        if name in _COUNTS:
            key, unit = _COUNTS[name]
            amount = number(value, f"SchedulerParameters: {name}") * unit
            if name == "bf_interval" and not amount:
                found["backfill"] = False
            else:
                found[key] = amount if key.endswith("_s") else int(amount)
        elif name == "preempt_youngest_first":
            found["youngest_first"] = True
        elif name not in _PACE:
            ignored.append(f"SchedulerParameters={option}")
    return found


def _preemption(settings: Mapping[str, tuple[str, str]], ignored: list[str]) -> Values:
    found: Values = {}
    kind = _text(settings, "preempttype").removeprefix("preempt/")
    if kind:
        found["preempt"] = kind
    mode, more = _mode(_text(settings, "preemptmode"))
    if mode:
        found["preempt_mode"] = mode
    ignored += [f"PreemptMode={word}" for word in more]
    exempt = settings.get("preemptexempttime", ("", ""))[1]
    if exempt and exempt not in ("-1", "NONE"):
        found["preempt_exempt_s"] = seconds(exempt, "PreemptExemptTime")
    for option in names(_text(settings, "preemptparameters")):
        if option == "youngest_first":
            found["youngest_first"] = True
        else:
            ignored.append(f"PreemptParameters={option}")
    return found


def _mode(text: str) -> tuple[str, list[str]]:
    """One of ours, and the words that are none; jobs that would be suspended are left alone."""
    words = [word.lower() for word in names(text)]
    known = [word for word in words if word in _MODES]
    others = [word.upper() for word in words if word not in (*_MODES, "cluster")]
    return (known[0] if known else "off" if others else ""), others


def _partition(given: Mapping[str, str], ignored: list[str]) -> Values:
    name = given["partitionname"]
    where = f"partition {name}"
    found: Values = {"name": name, "default": given.get("default", "NO").upper() == "YES"}
    found |= _ranks(given, where)
    if given.get("maxnodes", "UNLIMITED").upper() not in _NEVER:
        found["max_nodes"] = number(given["maxnodes"], f"{where}: MaxNodes")
    for key, target in (
        ("allowqos", "allow_qos"),
        ("allowaccounts", "allow_accounts"),
        ("denyqos", "deny_qos"),
        ("denyaccounts", "deny_accounts"),
    ):
        if key in given:
            found[target] = names(given[key])
    found["qos"] = "" if given.get("qos", "") in _EMPTY else given["qos"]
    mode, more = _mode(given.get("preemptmode", ""))
    if mode:
        found["preempt_mode"] = mode
    ignored += [f"{where}: PreemptMode={word}" for word in more]
    weights = given.get("tresbillingweights", "")
    if weights not in _EMPTY:
        found["billing"] = tres(weights, f"{where}: TRESBillingWeights", ignored, missing=0.0)
    for key, neutral in _PARTITION_NEUTRAL.items():
        if key in given and given[key].upper() not in neutral and given[key] not in neutral:
            ignored.append(f"{where}: {key}={given[key]}")
    return found


def _ranks(given: Mapping[str, str], where: str) -> Values:
    """Priorities and times; `Priority` is the old name of both priorities."""
    found: Values = {}
    for key, target in (
        ("prioritytier", "priority_tier"),
        ("priorityjobfactor", "priority_job_factor"),
    ):
        value = given.get(key, given.get("priority", ""))
        if value:
            found[target] = int(number(value, f"{where}: {key}"))
    for key, target in (("maxtime", "max_time_s"), ("defaulttime", "default_time_s")):
        if given.get(key, "") not in _EMPTY:
            found[target] = seconds(given[key], f"{where}: {key}")
    return found


# --- sacctmgr ------------------------------------------------------------------------------------

_QOS_LIMITS = {
    "grpjobs": "grp_jobs",
    "maxjobspu": "max_jobs_per_user",
    "maxjobsperuser": "max_jobs_per_user",
    "maxjobspa": "max_jobs_per_account",
    "maxjobsperaccount": "max_jobs_per_account",
}
_QOS_TRES = {
    "maxtres": "max_tres",
    "maxtresperjob": "max_tres",
    "maxtrespu": "max_tres_per_user",
    "maxtresperuser": "max_tres_per_user",
    "maxtrespa": "max_tres_per_account",
    "maxtresperaccount": "max_tres_per_account",
    "grptres": "grp_tres",
}
_QOS_OTHER = (
    "grptresmins", "grptresrunmins", "grpwall", "maxtrespernode", "maxtresmins", "mintres",
    "maxtresrunminspu", "maxtresrunminspa", "usagethres", "limitfactor",
)  # fmt: skip
_ASSOC_OTHER = ("grptresmins", "grptresrunmins", "grpwall", "maxtrespernode", "maxtresmins")


def read_qos(text: str) -> Values:
    """Values of `sacctmgr show qos --parsable2`."""
    ignored: list[str] = []
    found = []
    for cells in _rows(text, "Name", "sacctmgr show qos --parsable2"):
        name = cells["name"].strip()
        where = f"QOS {name}"
        one: Values = {"name": name}
        if cells.get("priority"):
            one["priority"] = int(number(cells["priority"], f"{where}: Priority"))
        one["preempt"] = names(cells.get("preempt", ""))
        mode, more = _mode(cells.get("preemptmode", ""))
        if mode:
            one["preempt_mode"] = mode
        ignored += [f"{where}: PreemptMode={word}" for word in more]
        exempt = cells.get("preemptexempttime", "")
        if exempt not in _EMPTY and exempt != "-1":
            one["preempt_exempt_s"] = seconds(exempt, f"{where}: PreemptExemptTime")
        if cells.get("usagefactor"):
            one["usage_factor"] = number(cells["usagefactor"], f"{where}: UsageFactor")
        wall = cells.get("maxwall") or cells.get("maxwalldurationperjob") or ""
        if wall:
            one["max_wall_s"] = seconds(wall, f"{where}: MaxWall")
        one |= _limits(cells, where, _QOS_LIMITS, _QOS_TRES, ignored)
        grace = cells.get("gracetime", "")
        if grace not in (*_EMPTY, "00:00:00", "0"):
            ignored.append(f"{where}: GraceTime={grace}")
        ignored += [f"{where}: {key}={cells[key]}" for key in _QOS_OTHER if _set(cells.get(key))]
        flags = names(cells.get("flags", ""))
        ignored += [f"{where}: Flags={flag}" for flag in flags if flag != "DenyOnLimit"]
        found.append(one)
    return {"qos": found} | ({"not_modelled": ignored} if ignored else {})


def read_assoc(text: str) -> Values:
    """Values of `sacctmgr show assoc --parsable2`."""
    ignored: list[str] = []
    found: list[Values] = []
    above: list[tuple[int, str]] = []  # indents and names of accounts, as `tree` prints them
    for cells in _rows(text, "Account", "sacctmgr show assoc tree --parsable2"):
        account, user = cells["account"].strip(), cells.get("user", "").strip()
        if cells.get("partition"):
            ignored.append(f"association of {user or account} with partition {cells['partition']}")
            continue
        one: Values = {"account": account, "user": user}
        if not user:
            depth = len(cells["account"]) - len(cells["account"].lstrip())
            above = [entry for entry in above if entry[0] < depth]
            parent = cells.get("parentname") or cells.get("parname") or ""
            one["parent"] = parent.strip() or (above[-1][1] if above else "")
            above.append((depth, account))
        shares = (
            cells.get("share") or cells.get("fairshare") or cells.get("rawshares") or "1"
        ).strip()
        where = f"association {account}{'/' if user else ''}{user}"
        one["shares"] = None if shares == "parent" else number(shares, f"{where}: Share")
        one["default_qos"] = (cells.get("defqos") or cells.get("defaultqos") or "").strip()
        one |= _limits(
            cells, where, {"maxjobs": "max_jobs", "grpjobs": "grp_jobs"},
            {"maxtres": "max_tres", "maxtresperjob": "max_tres", "grptres": "grp_tres"}, ignored,
        )  # fmt: skip
        ignored += [f"{where}: {key}={cells[key]}" for key in _ASSOC_OTHER if _set(cells.get(key))]
        if _set(cells.get("maxwall")):
            ignored.append(f"{where}: MaxWall={cells['maxwall']}")
        found.append(one)
    return {"associations": found} | ({"not_modelled": ignored} if ignored else {})


def _limits(
    cells: Mapping[str, str],
    where: str,
    counts: Mapping[str, str],
    amounts: Mapping[str, str],
    ignored: list[str],
) -> Values:
    found: Values = {}
    for key, target in counts.items():
        if _set(cells.get(key)):
            found[target] = number(cells[key], f"{where}: {key}")
    for key, target in amounts.items():
        if _set(cells.get(key)):
            found[target] = tres(cells[key], f"{where}: {key}", ignored, missing=INF)
    return found


def _set(value: str | None) -> bool:
    return bool(value) and value not in (*_EMPTY, "-1")


def _rows(text: str, title: str, command: str) -> Iterator[dict[str, str]]:
    """Cells by column, in lower case and without blanks (`Def QOS` is `defqos`)."""
    lines = [line for line in text.splitlines() if line.strip()]
    titles = [cell.replace(" ", "").lower() for cell in lines[0].split("|")] if lines else []
    if title.lower() not in titles or len(titles) < 2:  # noqa: PLR2004 - a table has columns
        raise OptionError(f"has no column {title!r}: give what `{command}` prints, with its header")
    for number_, line in enumerate(lines[1:], 2):
        cells = line.split("|")
        if len(cells) != len(titles):
            raise OptionError(f"line {number_} has {len(cells)} fields, the header {len(titles)}")
        yield dict(zip(titles, cells, strict=True))


# --- by hand -------------------------------------------------------------------------------------


def read_settings(text: str) -> Values:
    """Values of a YAML file with parameters of the policy."""
    try:
        content = read_yaml(text)
    except YAMLError as error:
        raise OptionError(f"is not YAML ({error})") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise OptionError("has no keys: write NAME: VALUE for each parameter")
    return content
