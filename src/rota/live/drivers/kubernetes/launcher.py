"""What runs in a pod: a fixed shell script; texts of users are only its arguments.

It needs a POSIX shell, and `setsid` to pass signals on to the children of the job's processes. When
a part ends, it writes one line to the pod's termination message, which Kubernetes keeps with the
exit code: `code asked began ended phase`. `asked` is 1 if SIGTERM came before the end; `began` and
`ended` are seconds of the node's own clock: Kubernetes itself tells whole seconds only.
"""

import msgspec

from rota.core.kubernetes import part, parts, text, time_of
from rota.live.drivers.kubernetes.api import KubeObject

MESSAGE = "/dev/termination-log"

LAUNCHER = r"""
setup=$1 run=$2 processes=$3
shell=$(command -v bash || command -v sh)
end=${ROTA_END_FILE:-/dev/termination-log}
asked=0 pids= code=0
group=; command -v setsid >/dev/null 2>&1 && group=setsid
[ -n "${ROTA_CHECKPOINT_DIR-}" ] && mkdir -p "$ROTA_CHECKPOINT_DIR"
[ -n "${ROTA_WORKDIR-}" ] && { mkdir -p "$ROTA_WORKDIR" && cd "$ROTA_WORKDIR" || exit 127; }
moment() { if [ -r /proc/uptime ]; then read -r moment _ </proc/uptime; else moment=0; fi; }
moment; began=$moment

signal() {
    for pid in $pids; do
        whom=$pid; [ -n "$group" ] && whom=-$pid
        kill -s "$1" -- "$whom" 2>/dev/null
    done
}
trap 'asked=1; signal TERM' TERM

finish() {
    moment
    printf '%s %s %s %s %s\n' "$code" "$asked" "$began" "$moment" "$1" >"$end" 2>/dev/null
    exit "$code"
}

launch() { $group "$shell" -c "$1" </dev/null & pids="$pids $!"; }

await() {
    if [ "$processes" -eq 1 ] || [ "$1" = setup ]; then
        set -- $pids
        while [ $# -gt 0 ]; do
            wait "$1"; code=$?
            kill -0 "$1" 2>/dev/null || break  # else a signal has woken us
        done
        pids=
        return
    fi
    left=$pids turns=0
    while [ -n "$left" ]; do
        sleep 0.2  # the shell takes note of who ended meanwhile
        rest=
        for pid in $left; do
            if kill -0 "$pid" 2>/dev/null; then rest="$rest $pid"; continue; fi
            wait "$pid"; status=$?
            if [ "$code" -eq 0 ] && [ "$status" -ne 0 ]; then code=$status; signal TERM; fi
        done
        left=$rest
        if [ "$code" -ne 0 ]; then
            turns=$((turns + 1))
            [ "$turns" -gt "$((5 * ${ROTA_GRACE_S%%.*} + 5))" ] && signal KILL
        fi
    done
    pids=
}

if [ -n "$setup" ]; then
    launch "$setup"; await setup
    if [ "$code" -ne 0 ] || [ "$asked" -eq 1 ]; then finish setup; fi
    moment; began=$moment
fi
number=0
while [ "$number" -lt "$processes" ]; do
    [ "$asked" -eq 1 ] && break
    LOCAL_RANK=$number RANK=$((ROTA_FIRST_RANK + number)) dist_rank=$((ROTA_FIRST_RANK + number))
    export LOCAL_RANK RANK dist_rank
    launch "$run"
    number=$((number + 1))
done
await run
finish run
"""


class PartEnd(msgspec.Struct, frozen=True):
    """How a part of a run ended, as its pod tells."""

    code: int
    asked: bool = False
    phase: str = "run"
    began_unix: float | None = None
    ended_unix: float | None = None
    why: str = ""
    known: bool = True  # False: nobody knows, its node or kubelet is to blame


OURS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodeLost", "Evicted", "Shutdown",
        "NodeShutdown", "Terminated", "Preempting")  # fmt: skip
UNSTARTED = {"ContainerCannotRun", "StartError", "ContainerStatusUnknown"}
_FIELDS = 5


def read_end(pod: KubeObject) -> PartEnd | None:
    """How a pod ended; None: it has not."""
    status, about = part(pod, "status"), part(pod, "metadata")
    phase, reason = text(status, "phase"), text(status, "reason")
    containers = parts(status, "containerStatuses")
    ended = [over for one in containers if (over := part(one, "state", "terminated"))]
    deleted = about.get("deletionTimestamp") is not None
    if not ended:
        if phase == "Failed":
            why = f"{reason}: {text(status, 'message')}".strip(": ")
            return PartEnd(1, why=why, known=not reason.startswith(OURS) and bool(reason))
        if deleted and about.get("deletionGracePeriodSeconds") == 0:
            return PartEnd(-9, asked=True, why="deleted before it could tell how it ended")
        return None
    if phase not in ("Succeeded", "Failed") and len(ended) < len(containers):
        return None
    return _told(ended[0], reason, deleted=deleted)


def _told(over: KubeObject, reason: str, *, deleted: bool) -> PartEnd:
    raw = over.get("exitCode")
    code = raw if isinstance(raw, int) else 1
    began, ended = time_of(over.get("startedAt")), time_of(over.get("finishedAt"))
    message = text(over, "message").split()
    known = not (reason.startswith(OURS) and not deleted) and text(over, "reason") not in UNSTARTED
    if len(message) == _FIELDS:
        try:
            said, asked = int(message[0]), message[1] == "1"
            lasted = float(message[3]) - float(message[2])
        except ValueError:
            pass
        else:
            if ended is not None and lasted >= 0:
                began = ended - lasted
            return PartEnd(_signalled(said), asked, message[4], began, ended, known=known)
    why = text(over, "reason") if code and text(over, "reason") != "Error" else ""
    return PartEnd(_signalled(code), deleted, "run", began, ended, why, known)


def _signalled(code: int) -> int:
    """Minus the signal where a shell says 128 + signal."""
    return 128 - code if 128 < code < 193 else code  # noqa: PLR2004
