"""Operations that go into jobs: commands, terminals and connections."""

from typing import Any

from starlette.responses import Response

from rota.api.routing import ApiCall, serves
from rota.live.calls import (
    CallAnswer,
    CloseChannel,
    ListChannels,
    OpenChannel,
    ReadChannel,
    RunCall,
    WriteChannel,
)
from rota.wire import (
    BINARY,
    CHANNEL_BYTES,
    CLOSE_CHANNEL,
    LIST_CHANNELS,
    MAIN,
    NEXT_OFFSET,
    OPEN_CHANNEL,
    READ_CHANNEL,
    WRITE_CHANNEL,
    ChannelInfo,
    ChannelQuery,
    InputQuery,
    InputTaken,
    NewChannel,
    Operation,
    RankQuery,
)


async def _reach(
    call: ApiCall, operation: Operation[Any], job: str, node_rank: int, wanted: RunCall
) -> CallAnswer:
    """In a lane of its own: such calls wait for what happens in a job."""
    return await call.context.channel_lane.run_for(
        call.actor.name, call.service.reach, operation, job, call.actor, node_rank, wanted
    )


@serves(OPEN_CHANNEL)
async def open_channel(call: ApiCall, job: str, body: NewChannel) -> ChannelInfo:
    """Start a command in a job that runs, or connect to one of its ports.

    It is in the job's sandbox and counts for its limits, as the job's user and with the job's
    variables. Without `argv` it is a shell. Nobody who reads its output for five minutes: it ends.
    """
    env = {"TERM": body.term} if body.term else {}
    wanted = OpenChannel(
        channel=body.id, argv=body.argv, tty=body.tty, rows=body.rows, cols=body.cols,
        port=body.port, env=env,
    )  # fmt: skip
    await _reach(call, OPEN_CHANNEL, job, body.node_rank, wanted)
    kind = "terminal" if body.id == MAIN else "port" if body.port else "exec"
    tty = body.tty or body.id == MAIN
    return ChannelInfo(id=body.id, kind=kind, tty=tty, node_rank=body.node_rank)


@serves(LIST_CHANNELS)
async def list_channels(call: ApiCall, job: str, query: RankQuery) -> list[ChannelInfo]:
    """List the ways into a job that are open."""
    found = await _reach(call, LIST_CHANNELS, job, query.node_rank, ListChannels())
    return [
        ChannelInfo(id=each.channel, kind=each.kind, tty=each.tty, node_rank=query.node_rank)
        for each in found.channels
    ]


@serves(READ_CHANNEL)
async def read_channel(call: ApiCall, job: str, channel: str, query: ChannelQuery) -> Response:
    """Read output of a channel.

    The answer is a sequence of pieces: a byte for the stream (1: output, 2: errors, 3: the end, in
    JSON with the exit code), four bytes for the length (big-endian), and so many bytes. The header
    `Rota-Next-Offset` says where the next one begins. What was asked for what follows it is not
    kept, but of a terminal the last megabyte always is.
    """
    wanted = ReadChannel(channel, query.offset, CHANNEL_BYTES, query.wait_s)
    found = await _reach(call, READ_CHANNEL, job, query.node_rank, wanted)
    headers = {NEXT_OFFSET: str(found.offset + len(found.data))}
    return Response(found.data, 200, headers, media_type=BINARY)


@serves(WRITE_CHANNEL)
async def write_channel(
    call: ApiCall, job: str, channel: str, query: InputQuery, body: bytes
) -> InputTaken:
    """Send input to a channel, or the size of its terminal.

    At most 256 KiB; a piece that is sent again is taken once. What was not taken has to be sent
    again.
    """
    wanted = WriteChannel(
        channel, query.offset, body[:CHANNEL_BYTES], query.eof and len(body) <= CHANNEL_BYTES,
        query.rows, query.cols, query.wait_s, query.writer,
    )  # fmt: skip
    found = await _reach(call, WRITE_CHANNEL, job, query.node_rank, wanted)
    return InputTaken(found.taken)


@serves(CLOSE_CHANNEL)
async def close_channel(call: ApiCall, job: str, channel: str, query: RankQuery) -> None:
    """End what a channel started; a terminal of the job itself stays."""
    await _reach(call, CLOSE_CHANNEL, job, query.node_rank, CloseChannel(channel))
