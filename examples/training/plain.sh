#!/bin/sh
# A job that knows nothing of Rota: it counts, keeps the count in a file, and goes on from there.
# Being stopped needs no code at all: whatever is in the file when the process ends is the state.
set -eu

steps=${1:-60}
state=${ROTA_CHECKPOINT_DIR:-.}/count
count=$(cat "$state" 2>/dev/null || echo 0)
echo "begins at $count, restart ${ROTA_RESTART_COUNT:-0}"

# Leave at once when asked to. Without this line the shell would end here too, by the signal.
trap 'echo "stopped at $count"; exit 0' TERM

while [ "$count" -lt "$steps" ]; do
    sleep 1 & wait $! # a trap waits for a command in the foreground, but interrupts `wait`
    count=$((count + 1))
    echo "$count" >"$state.new"
    mv "$state.new" "$state" # whole or not at all
done
echo "done at $count"
