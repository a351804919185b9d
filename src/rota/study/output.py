"""The files of a run: jobs.csv, summary.json, events.parquet, manifest.json."""

import json
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import InputError
from rota.core.log import NUMBERS, SCHEMA_VERSION
from rota.core.version import VERSION
from rota.metrics import write_jobs
from rota.metrics.basis import Basis
from rota.study.config import RunConfig
from rota.study.inputs import InputFile, find_inputs, hash_file
from rota.study.run import RunResult

JOBS, SUMMARY, EVENTS, MANIFEST = "jobs.csv", "summary.json", "events.parquet", "manifest.json"
ALLOCATION = "allocation.csv"
PACKAGES = {"msgspec": msgspec.__version__, "numpy": np.__version__, "polars": pl.__version__}
MANIFEST_VERSION = 1
TEXTS = 65_536  # of a log that are hashed at a time: all at once would be copied three times


class Manifest(msgspec.Struct, frozen=True):
    """What it takes to make a run again and to prove that it is the same."""

    manifest: int
    rota: str
    config: RunConfig
    command: list[str]
    inputs: list[InputFile]
    outputs: dict[str, str]
    log: dict[str, Any]
    platform: dict[str, str]
    packages: dict[str, str]
    written: str
    fragments: Basis | None = None


class _Origin(msgspec.Struct):
    """`live`: what a daemon says of itself in the manifest of a run that it made."""

    live: Any = None


def write_run(result: RunResult, folder: Path, command: Sequence[str] = ()) -> dict[str, Any]:
    """Write all files of a run into an existing folder; returns the summary as written."""
    write_jobs(result.jobs, folder / JOBS)
    result.log.write_parquet(
        folder / EVENTS, compression="zstd", metadata={"rota_schema": str(SCHEMA_VERSION)}
    )
    if result.allocation is not None:
        result.allocation.write_csv(folder / ALLOCATION)
    manifest = make_manifest(result, folder, command)
    (folder / MANIFEST).write_text(dump(msgspec.to_builtins(manifest)), encoding="utf-8")
    result.summary["cpu_s"] = process_time() - result.begun_cpu_s
    (folder / SUMMARY).write_text(dump(result.summary), encoding="utf-8")
    return result.summary


def make_manifest(result: RunResult, folder: Path, command: Sequence[str]) -> Manifest:
    """Describe a run whose other files are in the folder already."""
    return Manifest(
        manifest=MANIFEST_VERSION,
        rota=VERSION,
        config=result.config,
        command=list(command),
        inputs=find_inputs(result.config),
        outputs={name: hash_file(folder / name) for name in (JOBS, EVENTS)},
        log={"schema": SCHEMA_VERSION, "rows": result.log.height, "sha256": hash_log(result.log)},
        platform={
            "system": platform.platform(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "implementation": sys.implementation.name,
        },
        packages=PACKAGES,
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        fragments=result.basis,
    )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder that `write_run` made."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
        if msgspec.json.decode(content, type=_Origin).live is not None:
            raise InputError(
                f"{folder}: is a live run, which cannot be made again: simulate its workload.csv, "
                f"or compare with `rota calibrate`"
            )
        manifest = msgspec.json.decode(content, type=Manifest)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): name a folder that `rota simulate` made"
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is not a manifest of this Rota ({error})") from error
    if manifest.manifest != MANIFEST_VERSION:
        raise InputError(
            f"{path}: manifest version {manifest.manifest}, this Rota reads {MANIFEST_VERSION}"
        )
    return manifest


def hash_log(log: pl.DataFrame) -> str:
    """The SHA-256 of a log's content: its columns as bytes, whatever file format holds them."""
    digest = sha256()
    for name in NUMBERS:
        digest.update(np.ascontiguousarray(log[name].to_physical().to_numpy()).data)
    texts = log["text"].fill_null("\x00")
    for first in range(0, len(texts), TEXTS):
        some = texts[first : first + TEXTS].str.join("\x1e").item()
        digest.update(f"\x1e{some}".encode() if first else some.encode())
    return digest.hexdigest()


def dump(data: Any) -> str:
    """Readable JSON."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
