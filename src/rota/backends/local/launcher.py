"""From a job to its process: the command, the environment, and files for the output."""

import os
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO
from urllib.parse import quote

from rota.backends.local.process import ProcessGroup
from rota.core.errors import ClusterError, OutputError
from rota.core.jobs import Job


class Launcher:
    """Spawns jobs. The tasks of a non-gang job share its command unless they have their own."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        selector: selectors.BaseSelector,
        *,
        log_dir: Path | None,
        grace_s: float,
    ) -> None:
        self.commands = commands
        self.log_dir = log_dir
        self.grace_s = grace_s
        self._selector = selector
        self._starts: dict[int, int] = {}  # job index -> runs so far
        if log_dir is not None:
            try:
                log_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OutputError(f"cannot keep output of jobs in {log_dir}: {error}") from error

    def launch(self, job: Job, visible: str) -> ProcessGroup:
        """Spawn it with these devices; ClusterError says why that is impossible."""
        command = self.commands.get(job.id)
        if command is None and job.parent is not None:
            command = self.commands.get(job.parent.id)
        if not command:
            raise ClusterError(f"there is no command for job {job.id!r}")
        count = self._starts.get(job.index, 0)
        env = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": visible,
            "ROTA_JOB_ID": job.id,
            "ROTA_RESTART_COUNT": str(count),
        }
        try:
            with ExitStack() as files:
                out, err = (self._output(job, suffix, files) for suffix in ("out", "err"))
                group = ProcessGroup(
                    command, env, self._selector, out=out, err=err, grace_s=self.grace_s
                )
        except (OSError, ValueError) as error:
            raise ClusterError(f"cannot run {command[0]!r}: {error}") from error
        self._starts[job.index] = count + 1
        return group

    def forget(self, job: Job) -> None:
        """It will not run again."""
        self._starts.pop(job.index, None)

    def _output(self, job: Job, suffix: str, files: ExitStack) -> IO[bytes] | int:
        if self.log_dir is None:
            return subprocess.DEVNULL
        name = f"{quote(job.id, safe=' #')}.{suffix}"  # an id may look like a path
        return files.enter_context((self.log_dir / name).open("ab"))
