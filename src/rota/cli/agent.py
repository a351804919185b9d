"""`rota agent`: offers this machine to a Rota server."""

import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rota.cli.options import DEBUG, ISOLATION, VISIBLE, Finite
from rota.cli.signals import work_until_done
from rota.core.errors import OptionError

if TYPE_CHECKING:
    from rota.live.agent.agent import Agent
    from rota.live.agent.containers import ContainerEngine
    from rota.live.agent.link import AgentLink
    from rota.live.agent.messages import AgentNode
    from rota.live.agent.sandbox import Sandbox
    from rota.live.agent.transport import HttpTransport

LEAVE_S = 3600.0  # the longest grace that jobs may have when the agent leaves


@click.command()
@click.option(
    "--server",
    required=True,
    metavar="URL",
    envvar="ROTA_SERVER",
    help="Address of the server, e.g. http://10.0.0.1:7842; several that take turns: with commas "
    "between them.",
)
@click.option(
    "--token-file",
    metavar="F",
    envvar="ROTA_TOKEN_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with a token of the role `agent`, readable by its owner only.",
)
@click.option(
    "--join",
    metavar="CODE",
    envvar="ROTA_JOIN",
    help="Code of `rota token join`, for the first start: then the agent has a credential of "
    "its own, in its folder.",
)
@click.option(
    "--ca",
    metavar="F",
    envvar="ROTA_CA",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with certificates to trust (PEM), for a server with HTTPS.",
)
@click.option("--name", metavar="N", help="Node name; by default the name of this machine.")
@click.option(
    "--gpus",
    metavar="N|auto",
    default="auto",
    show_default=True,
    help="GPUs to offer: a number (0: none), or those that nvidia-smi finds.",
)
@click.option("--gpu-type", metavar="T", help="GPU type; by default what nvidia-smi reports.")
@click.option(
    "--cpus", metavar="N", type=Finite(min=0), help="Processors to offer; by default all."
)
@click.option(
    "--mem",
    metavar="GIB",
    type=Finite(min=0),
    help="Memory to offer, in GiB; by default all.",
)
@click.option(
    "--sharing",
    type=click.Choice(["exclusive", "fraction", "timeslice", "mps"]),
    help="How jobs may share a GPU of this machine; by default parts of one, without limits.",
)
@click.option(
    "--gpu-mem-gib",
    metavar="GIB",
    type=Finite(min=0),
    help="Memory of each GPU, for jobs that say how much they need; with --sharing by default what "
    "nvidia-smi reports.",
)
@click.option(
    "--address",
    metavar="A",
    help="Where the other nodes of a job can reach this one (MASTER_ADDR); by default "
    "the address from which this machine reaches the server.",
)
@click.option(
    "--root",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="State folder of the agent; by default ~/.local/state/rota-agent.",
)
@click.option(
    "--jobs",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for working folders, checkpoints and output of jobs, by default in the "
    "agent's folder. On storage that all machines share a job finds its checkpoint "
    "wherever it runs.",
)
@ISOLATION
@VISIBLE
@click.option(
    "--inherit",
    metavar="NAME",
    multiple=True,
    help="Variable of the agent that jobs of others inherit; * is allowed; may be repeated.",
)
@click.option(
    "--containers",
    type=click.Choice(["auto", "podman", "apptainer", "off"]),
    default="auto",
    show_default=True,
    envvar="ROTA_CONTAINERS",
    help="What runs the images of jobs; auto: the first that runs a container when the agent "
    "starts. Without, jobs with an image are not started here.",
)
@click.option("--label", metavar="L", multiple=True, help="Node label; may be repeated.")
@click.option(
    "--health-check",
    metavar="auto|off|CMD",
    default="auto",
    show_default=True,
    help="What drains this node when it fails, once a minute: auto (nvidia-smi and DCGM, where "
    "there are real GPUs), off, or a command whose first line of output is the reason.",
)
@click.option(
    "--dcgm-exporter",
    metavar="URL",
    default="",
    envvar="ROTA_DCGM_EXPORTER",
    help="Read how busy GPUs are from a DCGM exporter, http://localhost:9400/metrics; by default "
    "nvidia-smi tells, and dcgmi of GPUs that it does not know.",
)
@click.option(
    "--gpu-mem-excess",
    type=click.Choice(["warn", "stop", "off"]),
    default="warn",
    show_default=True,
    envvar="ROTA_GPU_MEM_EXCESS",
    help="What happens to a job that uses more GPU memory than it asked for, on a GPU that it "
    "shares, as nvidia-smi tells by process.",
)
@click.option(
    "--prolog",
    metavar="CMD",
    default="",
    help="Command to run before each job, as the agent's user; if it fails, the job runs elsewhere "
    "and this node is drained.",
)
@click.option(
    "--epilog",
    metavar="CMD",
    default="",
    help="Command to run after each job, like --prolog. Both find ROTA_JOB_ID, ROTA_JOB_USER and "
    "ROTA_HOOK.",
)
@click.option(
    "--leave",
    is_flag=True,
    help="When stopped: end the jobs here and take the node out of the cluster.",
)
@DEBUG
def agent(**options: Any) -> None:  # fmt: skip
    """Offer this machine to a Rota server; runs until it is stopped.

    Jobs outlive the agent: SIGTERM or Ctrl-C stops the agent only, and the next one with the same
    folder takes them over (unless --leave is given). The server may have it begin anew (`rota nodes
    restart`): then it replaces itself by the version that is installed. If the server cannot be
    reached for too long the jobs here are ended, because the server will start them elsewhere.
    Under systemd use KillMode=process.

    \b
    Example:
      rota agent --server https://10.0.0.1:7842 --join CODE --gpus auto
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.live.agent.agent import Agent
    from rota.live.agent.health import HealthWatch, make_check, make_hooks
    from rota.live.agent.link import AgentLink
    from rota.live.agent.usage import UsageWatch, checked_exporter
    from rota.sdk.place import checked_urls

    _log_to_stderr()
    server = options["server"] = checked_urls(options["server"], "--server")
    root = options["root"] or Path.home() / ".local" / "state" / "rota-agent"
    node = _node(options)
    check = make_check(options["health_check"])
    exporter = checked_exporter(options["dcgm_exporter"])
    transport = _transport(server, root, node.spec.name, options)
    stopped = threading.Event()
    _watch_children()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:  # from now on jobs may be adopted
        signal.signal(number, lambda *_: stopped.set())
    worker = Agent(
        root, [node], name=node.spec.name, jobs=options["jobs"], fenced=True,
        sandbox=_sandbox(root, options), containers=_containers(options),
        hooks=make_hooks(options["prolog"], options["epilog"]),
        gpu_mem_excess=options["gpu_mem_excess"],
    )  # fmt: skip
    worker.files.fetch = transport.piece
    worker.on_restart = stopped.set
    link = AgentLink(worker, transport, transport.lane)
    log = logging.getLogger("rota.agent")

    def work() -> None:
        log.info("agent.started", extra={"node": node.spec.name, "gpus": node.spec.gpus})
        link.start()
        UsageWatch(
            worker.watched, worker.measured_usage, exporter=exporter, exceeded=worker.exceeded
        ).start()
        if check is not None:
            HealthWatch(check, worker.checked).start()
        stopped.wait()

    work_until_done(work, dict.fromkeys(numbers, lambda _: stopped.set()))
    if worker.restarting:
        _begin_anew(worker, link)
    _end(link, leave=options["leave"])
    transport.close()
    log.info("agent.stopped", extra={"node": node.spec.name})


def _watch_children() -> None:
    """Jobs that the program before us started in this process are our children: let them end."""
    from rota.live.agent import processes, shim

    known = shim.descendants(os.getpid())
    if known:
        threading.Thread(
            target=processes.reap, args=(known,), name="rota-agent-reap", daemon=True
        ).start()


def _begin_anew(worker: "Agent", link: "AgentLink") -> NoReturn:
    """Put a new program in the place of this one: the version that is installed now."""
    link.end()
    worker.rest()
    logging.getLogger("rota.agent").info("agent.restarts", extra={"node": worker.name})
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - as we were started


def _transport(server: str, root: Path, node: str, options: dict[str, Any]) -> "HttpTransport":
    """How to speak to the server: as a member, or with a token; a code makes a member."""
    from rota.live.agent.identity import AgentIdentity, JoinCode
    from rota.live.agent.transport import CertifiedTransport, HttpTransport, join
    from rota.sdk.place import connection

    identity = AgentIdentity(root / "identity")
    token_file = options["token_file"]
    how = connection(server.partition(",")[0], str(options["ca"] or ""))
    if token_file is None and not identity.is_known:
        if not options["join"]:
            raise OptionError("--join: give a code of `rota token join`, or --token-file")
        join(server, JoinCode.read(options["join"]), node, identity, how)
    if token_file is None and identity.certificate.exists():
        return CertifiedTransport(server, identity, node)
    relayed = bool(os.environ.get("ROTA_TUNNEL"))
    return HttpTransport(server, token_file or identity.token, how, relayed=relayed)


def _sandbox(root: Path, options: dict[str, Any]) -> "Sandbox | None":
    """How jobs are kept apart; None: they are not, which is said once."""
    from rota.live.agent.sandbox import Sandbox, may_isolate

    may, why = may_isolate(options["isolation"] or "auto")
    if not may:
        told = "jobs are not kept apart: each can read the files of the others and of this agent"
        logging.getLogger("rota.agent").warning(
            told, extra={"why": why or "--isolation is off"}
        )  # fmt: skip
        return None
    return Sandbox(
        [root, *([options["jobs"]] if options["jobs"] else [])],
        secrets=[options["token_file"]] if options["token_file"] else [],
        visible=[str(path.absolute()) for path in options["visible"]],
        environment=options["inherit"],
    )


def _containers(options: dict[str, Any]) -> "ContainerEngine | None":
    """What runs images here; None: nothing does, which is said once."""
    from rota.live.agent.containers import find_engine

    visible = [str(path.absolute()) for path in options["visible"]]
    found, why = find_engine(options["containers"], visible)
    log = logging.getLogger("rota.agent")
    if found is None:
        log.info("no containers on this machine", extra={"why": why})
    else:
        log.info("containers", extra={"engine": found.program})
    return found


def _end(link: "AgentLink", *, leave: bool) -> None:
    """Stop with or without the jobs; a second signal ends the wait at once."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if leave:
        link.leave(LEAVE_S)
    link.stop(timeout_s=1.0)


def _node(options: dict[str, Any]) -> "AgentNode":
    """What this machine offers."""
    from rota.core.topology import NodeSpec
    from rota.live.agent import machine
    from rota.live.agent.messages import AgentNode

    devices, gpu_type, gpu_mem_gib = _gpus(options["gpus"])
    if options["gpu_mem_gib"] is not None:
        gpu_mem_gib = options["gpu_mem_gib"]
    elif options["sharing"] is None:
        gpu_mem_gib = 0.0
    spec = NodeSpec(
        name=options["name"] or socket.gethostname(),
        gpus=len(devices),
        gpu_type=gpu_type if options["gpu_type"] is None else options["gpu_type"],
        cpus=machine.cpus() if options["cpus"] is None else options["cpus"],
        mem_gib=machine.mem_gib() if options["mem"] is None else options["mem"],
        labels=tuple(options["label"]),
        gpu_mem_gib=gpu_mem_gib,
        sharing=options["sharing"] or "",
    )
    address = options["address"] or _own_address(options["server"])
    return AgentNode(spec, address, tuple(devices))


def _gpus(text: str) -> tuple[list[str], str, float]:
    """Names for CUDA_VISIBLE_DEVICES, the type, and GiB of memory that each has."""
    from rota.live.agent import machine

    if text == "auto":
        found = machine.find_gpus()
        if not found:
            raise OptionError(
                "--gpus auto: nvidia-smi finds no GPUs on this machine: give --gpus N, or --gpus 0 "
                "for a node without GPUs"
            )
        least_mib = min(gpu.memory_mib for gpu in found)
        return [gpu.index for gpu in found], machine.gpu_type(found), round(least_mib / 1024, 3)
    if not text.isdecimal():
        raise OptionError(f"--gpus {text!r}: give a number or auto")
    return [str(number) for number in range(int(text))], "", 0.0


def _own_address(server: str) -> str:
    """The address from which this machine reaches the server; nothing is sent."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(server.partition(",")[0])
        host, port = parts.hostname or "", parts.port or 80
        kind, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--server {server}: cannot tell how to reach it ({error}): give --address"
        ) from error


def _log_to_stderr() -> None:
    """One JSON object for each line."""
    import structlog

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso"),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logger = logging.getLogger("rota")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
