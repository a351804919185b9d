"""The options of `sbatch`: which take a value, and why some have no counterpart."""

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
    "gpus-per-task", "gres", "job-name", "mem", "mem-per-cpu", "mem-per-gpu", "nodes", "ntasks",
    "ntasks-per-node", "partition", "priority", "signal", "time",
)  # fmt: skip
FLAGS = ("hold", "requeue", "quiet", "verbose", "parsable")  # `requeue`: Rota always does

_PLACE = "Rota's placement chooses the nodes"
_LOGS = "output is kept by Rota: see `rota logs JOB`"
_MAIL = "Rota sends no mail"
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
    "time-min": "use --time", "comment": _NONE, "clusters": _NONE, "licenses": _NONE,
    "no-kill": _NONE, "overcommit": _NONE, "wait": "use `rota submit --wait`",
    "distribution": _CORES, "core-spec": _CORES, "cpu-bind": _CORES, "gpu-bind": _CORES,
    "hint": _CORES, "threads-per-core": _CORES, "cores-per-socket": _CORES,
    "sockets-per-node": _CORES, "ntasks-per-core": _CORES, "ntasks-per-socket": _CORES,
    "ntasks-per-gpu": "use ntasks-per-node", "cpus-per-gpu": "use --cpus-per-task",
    "extra-node-info": _CORES, "mincpus": "use --cpus-per-task", "tmp": _NONE,
    "container": "processes run without containers", "propagate": _NONE, "profile": _NONE,
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
