"""Structured logs on the standard error output: a line for each thing that happened."""

import logging
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from rota.core.errors import InputError

LEVELS = ("debug", "info", "warning", "error")


class LogFile(RotatingFileHandler):
    """A file for both kinds of loggers; when it is large enough it becomes `FILE.1`, and so on."""

    def write(self, line: str) -> None:
        """A line that is complete, of a logger that is none of the standard library's."""
        if line.strip():
            self.handle(logging.makeLogRecord({"msg": "%s", "args": (line.rstrip("\n"),)}))

    def _open(self) -> TextIOWrapper:
        """A new one is private, too."""
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding=self.encoding)


class LossyStream:
    """Somewhere to write to whose reader may go, or whose disk may fill: nobody fails for that.

    None: the standard error output of the moment, which others may have replaced.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """As far as that is possible."""
        with suppress(OSError):
            (self._stream or sys.stderr).write(text)

    def flush(self) -> None:
        """As far as that is possible."""
        with suppress(OSError):
            (self._stream or sys.stderr).flush()


def open_log(path: Path, largest_bytes: int, files: int) -> LogFile:
    """A log in a file that only its owner can read.

    Raises:
        InputError: It cannot be written.
    """
    try:
        return LogFile(path, maxBytes=largest_bytes, backupCount=files, encoding="utf-8")
    except OSError as error:
        raise InputError(f"log_file {path}: cannot be written: {error.strerror}") from error


def configure(level: str = "info", *, json: bool = False, file: LogFile | None = None) -> None:
    """Set up the logs of this process; `file`: not to the standard error output.

    Tracebacks come without the values of variables: a token could be among them.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    ending: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if json
        else [
            structlog.dev.ConsoleRenderer(
                colors=file is None and sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    number = logging.getLevelNamesMapping()[level.upper()]
    stream = cast("TextIO", LossyStream(cast("TextIO | None", file)))
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    _adopt("uvicorn", handler, max(number, logging.WARNING))
    _adopt("rota", handler, number)  # backends use the standard library's loggers


def _adopt(name: str, handler: logging.Handler, level: int) -> None:
    """Let the messages of a standard logger look the same."""
    logger = logging.getLogger(name)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level)
