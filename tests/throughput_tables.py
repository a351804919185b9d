"""Small tables of throughputs, made up."""

import json

TYPES = ("v100", "k80")


def write_table(path, alone, pairs=(), scattered=None):
    """Write a table in Gavel's layout.

    `alone`: {(model, gpus): (steps/s on each of TYPES)}; `pairs`: {(kind, kind): (own, other's)} as
    shares of the throughput alone, on all types; `scattered`: like `alone`, on several nodes.
    """
    table = {}
    for number, gpu_type in enumerate(TYPES):
        jobs = table[gpu_type] = {}
        for kind, speeds in alone.items():
            jobs[str(kind)] = {"null": speeds[number]}
        for (one, other), (own, others) in dict(pairs).items():
            jobs[str(one)][str(other)] = [
                own * alone[one][number], others * alone[other][number],
            ]  # fmt: skip
        if scattered:
            table[f"{gpu_type}_unconsolidated"] = {
                str(kind): {"null": speeds[number]} for kind, speeds in scattered.items()
            }
    path.write_text(json.dumps(table))
    return str(path)
