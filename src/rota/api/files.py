"""Operations on files: those that travel with a job, and its results."""

from typing import Any

from starlette.responses import Response

from rota.api.routing import ApiCall, reading, serves
from rota.core.errors import NotFoundError
from rota.core.manifest import FileManifest
from rota.live.calls import CallAnswer, FileCall, ListFiles, ReadFile
from rota.wire import (
    BINARY,
    FETCH_PIECE,
    LIST_FILES,
    NEXT_OFFSET,
    PLAN_UPLOAD,
    READ_FILE,
    SEND_PIECE,
    FilePage,
    FileQuery,
    FilesQuery,
    JobFileInfo,
    Operation,
    UploadState,
)


@serves(PLAN_UPLOAD)
def plan_upload(call: ApiCall, body: FileManifest) -> UploadState:
    """Say which pieces of some files are still to be sent.

    When none is missing the upload is complete, and its `id` can be the `upload` of a job. Pieces
    have 4 MiB, but for the last of each file, and are known by their SHA-256; what was sent before,
    for whatever job of the same user, is not sent again.
    """
    made, missing = call.service.plan_upload(body, call.actor)
    return UploadState(made, missing)


@serves(SEND_PIECE)
def send_piece(call: ApiCall, digest: str, body: bytes) -> None:
    """Send a piece, by its SHA-256."""
    call.service.take_piece(digest, body, call.actor)


@serves(FETCH_PIECE)
async def fetch_piece(call: ApiCall, body: bytes) -> bytes:
    """Fetch a piece of the files of a job, for the agent that starts it.

    For agents of the same version only: the messages are not part of the public interface.
    """
    if call.context.agent_pieces is None:
        raise NotFoundError("this daemon has no agents")
    with reading():
        return await call.context.call_lane.run(call.context.agent_pieces, body, call.actor.name)


async def _reach(
    call: ApiCall, operation: Operation[Any], job: str, wanted: FileCall
) -> CallAnswer:
    return await call.context.channel_lane.run_for(
        call.actor.name, call.service.reach_files, operation, job, call.actor, wanted
    )


@serves(LIST_FILES)
async def list_files(call: ApiCall, job: str, query: FilesQuery) -> FilePage:
    """List the files of a job, in pages: its working folder, or its checkpoints.

    Only folders of the job's own. Plain files only: links and everything else are `skipped`.
    """
    wanted = ListFiles(query.folder, query.path, query.after, query.limit)
    found = await _reach(call, LIST_FILES, job, wanted)
    files = [JobFileInfo(f.path, f.size, f.mtime_ns, f.executable) for f in found.files]
    return FilePage(files, list(found.skipped), more=bool(found.taken))


@serves(READ_FILE)
async def read_job_file(call: ApiCall, job: str, query: FileQuery) -> Response:
    """Read a piece of a file of a job; an empty one is the end."""
    wanted = ReadFile(query.path, query.folder, query.offset, query.limit)
    found = await _reach(call, READ_FILE, job, wanted)
    headers = {NEXT_OFFSET: str(query.offset + len(found.data))}
    return Response(found.data, 200, headers, media_type=BINARY)
