"""What runs on the nodes: fixed shell scripts, and files with the data of a run.

No text of a user becomes part of a line of shell: `setup` and `run` are files of their own, and
variables are quoted. The folder of a run lies on a file system that all nodes share:

    batch.sh       started by Slurm; a run is claimed once, a second start leaves at once
    node.sh        started on each node: setup, then the processes
    nodes/NAME.sh  variables of one node
    setup.sh run.sh
    claimed/       there since Slurm started the run
    ready.R        `time` at which node R had done its setup and started its processes
    end.R          `code asked time phase` of node R: asked is 1 if SIGTERM came before the end
    report         lines of `rota.job`
"""

from shlex import quote

from rota.core.errors import ClusterError
from rota.live.driver import RunOrder, RunPart
from rota.live.drivers.slurm.names import VARIABLE, plain

BOOTSTRAP = """\
#!/bin/bash
# The run that this Slurm job carries out at the moment is behind the link with its number.
exec /bin/bash {links}/"$SLURM_JOB_ID"/batch.sh
"""

BATCH = """\
#!/bin/bash
run={run}
if ! mkdir "$run/claimed" 2>/dev/null; then
    echo "rota: run $(basename "$run") was started before: nothing to do" >&2
    exit 0
fi
trap : TERM
{start}
"""

HERE = 'exec /bin/bash "$run/node.sh" "$run" alone'

EVERYWHERE = """\
unset SLURM_NTASKS SLURM_NPROCS SLURM_TASKS_PER_NODE SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_MEM_PER_GPU
srun {layout} --cpu-bind=none --mem=0 --kill-on-bad-exit=1 --wait=0 --input=none \\
    /bin/bash "$run/node.sh" "$run" 2> >(grep -v 'lacks support for cpu binding' >&2)"""

NODE = r"""#!/bin/bash
# Setup, then the processes of one node. Slurm signals every process of a step: then this shell only
# notes it. A run on one node is no step but the batch script: then it passes SIGTERM on.
run=$1 alone=${2-}
. "$run/nodes/${SLURMD_NODENAME:?}.sh" || exit 127
exec >>"$rota_logs/$rota_rank.out" 2>>"$rota_logs/$rota_rank.err" </dev/null
set -m  # each process gets a group of its own, so that it can be ended with its children
asked=0
trap 'asked=1' TERM
pipe=$(mktemp -u) && mkfifo -m 600 "$pipe" && exec 3<>"$pipe" && rm -f "$pipe" || exit 127

finish() {  # code phase
    printf '%s %s %s %s\n' "$1" "$asked" "${EPOCHREALTIME/,/.}" "$2" >"$run/.end.$rota_rank"
    mv "$run/.end.$rota_rank" "$run/end.$rota_rank"
    exit "$1"
}

launch() {  # script
    if [ "$asked" -eq 1 ]; then return; fi
    (cd "$rota_work" && exec /bin/bash "$1" 3>&-) &
    pids+=("$!")
}

signal() {  # name: to all that are left, with their children
    local number
    for number in "${!pids[@]}"; do kill -"$1" -- "-${pids[number]}" 2>/dev/null; done
}

await() {  # sets code: 0 or the first other; one that fails ends the others
    local number status passed_on=0 until=0
    code=0
    while [ "${#pids[@]}" -gt 0 ]; do
        if [ -n "$alone" ] && [ "$asked" -gt "$passed_on" ]; then
            passed_on=1
            signal TERM
        fi
        for number in "${!pids[@]}"; do
            if kill -0 "${pids[number]}" 2>/dev/null; then continue; fi
            wait "${pids[number]}" 2>/dev/null  # is over: only tells its exit code
            status=$?
            unset "pids[number]"
            if [ "$code" -eq 0 ] && [ "$status" -ne 0 ]; then
                code=$status
                signal TERM
                until=$((SECONDS + ${ROTA_GRACE_S%%.*} + 1))
            fi
        done
        if [ "$until" -gt 0 ] && [ "$SECONDS" -ge "$until" ]; then signal KILL; fi
        read -r -t 0.1 -u 3 _  # nobody writes: a short sleep
    done
}

pids=()
if [ -s "$run/setup.sh" ]; then
    launch "$run/setup.sh"
    await
    if [ "$code" -ne 0 ] || [ "$asked" -eq 1 ]; then finish "$code" setup; fi
fi
IFS=, read -r -a rota_devices <<<"${CUDA_VISIBLE_DEVICES-}"
for ((local_rank = 0; local_rank < rota_processes; local_rank++)); do
    rota_process "$local_rank"
    launch "$run/run.sh"
done
printf '%s\n' "${EPOCHREALTIME/,/.}" >"$run/.ready.$rota_rank"
mv "$run/.ready.$rota_rank" "$run/ready.$rota_rank"
await
finish "$code" run
"""

VISIBLE = '"${CUDA_VISIBLE_DEVICES-}"'


def batch_script(run: str, order: RunOrder, components: int) -> str:
    """The file that Slurm starts; `run` is the folder of the run."""
    count = len(order.parts)
    if count == 1:
        start = HERE
    elif components == 1:
        start = EVERYWHERE.format(layout=f"--nodes={count} --ntasks={count} --ntasks-per-node=1")
    else:
        groups = ",".join(str(number) for number in range(components))
        start = EVERYWHERE.format(layout=f"--het-group={groups}")
    return BATCH.format(run=quote(run), start=start)


def node_file(order: RunOrder, part: RunPart, places: dict[str, str], master: str) -> str:
    """Variables of one node; `places` are the folders `work`, `checkpoint`, `logs` and `report`."""
    for name in order.launch.envs:
        if VARIABLE.fullmatch(name) is None:
            raise ClusterError(f"{name!r} cannot be the name of a variable: letters, digits and _")
    settings = {
        "rota_rank": str(part.node_rank),
        "rota_processes": str(part.processes),
        "rota_work": places["work"],
        "rota_logs": places["logs"],
    }
    lines = [f"{name}={quote(value)}" for name, value in settings.items()]
    lines += [f"export {name}={quote(value)}" for name, value in _shared(order, part, master)]
    lines += [
        f"export {name}={VISIBLE}"
        for name in ("CUDA_VISIBLE_DEVICES", "local_accessible_gpu", "local_accessible_gpus")
    ]
    own = _own(order, part, places)
    lines += [
        f"export {name}={quote(value)}"
        for name, value in order.launch.envs.items()
        if not name.startswith("ROTA_")
    ]
    lines += [f"export {name}={quote(value)}" for name, value in own]
    return "\n".join([*lines, _process(order, part)]) + "\n"


def _shared(order: RunOrder, part: RunPart, master: str) -> list[tuple[str, str]]:
    return [
        ("LOCAL_WORLD_SIZE", str(part.processes)),
        ("MASTER_ADDR", master),
        ("MASTER_PORT", str(order.master_port)),
        ("NODE_RANK", str(part.node_rank)),
        ("WORLD_SIZE", str(order.world_size)),
        ("job_id", order.job),
        ("master_ip_address", master),
        ("world_size", str(order.world_size)),
    ]


def _own(order: RunOrder, part: RunPart, places: dict[str, str]) -> list[tuple[str, str]]:
    task = order.launch.task
    limit = [("ROTA_TIME_LIMIT_S", f"{order.limit_s:g}")] if order.limit_s else []
    return [
        *limit,
        *(task.variables().items() if task is not None else ()),
        ("ROTA_CHECKPOINT_DIR", places["checkpoint"]),
        ("ROTA_GPUS", f"{part.gpus:g}"),
        ("ROTA_GRACE_S", f"{order.launch.grace_s:g}"),
        ("ROTA_JOB_ID", order.job),
        ("ROTA_JOB_NAME", order.name),
        ("ROTA_NODE_NAME", part.node),
        ("ROTA_NUM_NODES", str(len(order.parts))),
        ("ROTA_REPORT_FILE", places["report"]),
        ("ROTA_RESTART_COUNT", str(order.restart)),
        ("ROTA_RUN_ID", order.run),
    ]


def _process(order: RunOrder, part: RunPart) -> str:
    """A function that sets what differs between the processes of a node."""
    values = {
        "RANK": f"$(({part.first_rank} + $1))",
        "LOCAL_RANK": '"$1"',
        "dist_rank": f"$(({part.first_rank} + $1))",
        "local_gpu_id": '"${rota_devices[$1 % (${#rota_devices[@]} ? ${#rota_devices[@]} : 1)]-}"',
    }
    lines = [
        f"    export {name}={value}"
        for name, value in values.items()
        if name not in order.launch.envs
    ]
    return "\n".join(["rota_process() {", *(lines or ["    :"]), "}"])


def bootstrap(links: str) -> str:
    """The script that is submitted: always the same."""
    return BOOTSTRAP.format(links=quote(links))


def node_file_name(part: RunPart) -> str:
    """Where `node_file` goes."""
    return f"nodes/{plain('node', part.node)}.sh"
