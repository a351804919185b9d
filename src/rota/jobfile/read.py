"""Job descriptions in any of the forms that are understood."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError
from rota.jobfile import blox, manifest, openpai, sbatch
from rota.jobfile.check import check
from rota.jobfile.documents import Translated, load_documents
from rota.jobfile.model import JobFile
from rota.jobfile.plain import read_plain

MOST_BYTES = 16 << 20
_BOM = b"\xef\xbb\xbf"


def read_jobs(source: Path | str) -> list[JobFile]:
    """The jobs of a file (a `Path`) or of a text, without the warnings."""
    return [found.job for found in read_translated(source)]


def read_translated(source: Path | str, *, folder: Path | None = None) -> list[Translated]:
    """The jobs of a file (a `Path`) or of a text, each with what cannot be honoured.

    Our own YAML, `#SBATCH` scripts, OpenPAI's YAML, manifests of Kubernetes and Blox's descriptions
    are told apart by what is in them. Relative folders of a job are meant from `folder`; without
    one, from where the file is, and those of a text stay as they are. A script runs, as with Slurm,
    where it is submitted.
    """
    if isinstance(source, Path):
        text, where = _read(source), str(source)
        folder = folder or (Path.cwd() if _is_script(text) else source.absolute().parent)
    else:
        text, where = source, "job"
    found = _of_script(text, where) if _is_script(text) else _of_documents(text, where)
    found = [_from_folder(item, folder) if folder else item for item in found]
    for item in found:
        check(item.job, where)
    return found


def _is_script(text: str) -> bool:
    return text.startswith("#!") or sbatch.MARK.search(text) is not None


def _of_script(text: str, where: str) -> list[Translated]:
    found = sbatch.read_sbatch(text.replace("\r\n", "\n"), where)
    return [found if found.job.workdir else _in_folder(found, ".")]


def _of_documents(text: str, where: str) -> list[Translated]:
    documents = load_documents(text, where)
    if not documents:
        raise InputError(f"{where}: holds no job: it needs at least the key 'run'")
    found = []
    for number, content in enumerate(documents, 1):
        place = where if len(documents) == 1 else f"{where}: job {number}"
        found.append(_reader(content)(content, place))
    return found


def _reader(content: Any) -> Callable[[Any, str], Translated]:
    if isinstance(content, dict):
        if openpai.MARK in content or "taskRoles" in content:
            return openpai.read_openpai
        if manifest.MARK in content:
            return manifest.read_manifest
        if blox.MARK in content:
            return blox.read_blox
    return read_plain


def _from_folder(found: Translated, folder: Path) -> Translated:
    """Relative folders become absolute ones."""
    job = found.job
    if job.workdir and not Path(job.workdir).is_absolute():
        job = msgspec.structs.replace(job, workdir=_joined(folder, job.workdir))
    kept = job.checkpoint.dir
    if kept and not Path(kept).is_absolute():
        checkpoint = msgspec.structs.replace(job.checkpoint, dir=_joined(folder, kept))
        job = msgspec.structs.replace(job, checkpoint=checkpoint)
    return msgspec.structs.replace(found, job=job)


def _in_folder(found: Translated, workdir: str) -> Translated:
    return msgspec.structs.replace(found, job=msgspec.structs.replace(found.job, workdir=workdir))


def _joined(folder: Path, path: str) -> str:
    if path == "~" or path.startswith("~/"):
        return str(Path.home() / path[2:])
    return os.path.normpath(folder / path)


def _read(path: Path) -> str:
    if path.is_dir():
        raise InputError(f"{path}: is a folder: name a file in it")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1).removeprefix(_BOM)
    except FileNotFoundError as problem:
        raise InputError(f"{path}: there is no such file: check the path") from problem
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise InputError(f"{path}: cannot be read ({why}): check its permissions") from problem
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: is larger than {MOST_BYTES >> 20} MiB: split it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{path}: is not UTF-8 text (byte 0x{data[problem.start]:02x} at position "
            f"{problem.start}): save it as UTF-8"
        ) from problem
