"""Folders of profiles by GPU type in the layout of Sia's, made up."""

from itertools import product

SPEEDS = {"slow": 1.0, "fast": 3.0}
NODE_GPUS = 4
WORKLOAD = """name,time,application,num_replicas,batch_size,category
net-0,7,net,4,256,adaptive
net-1,30,net,2,128,scale-gpus
net-2,95,net,4,128,rigid
net-3,200,net,1,64,adaptive
net-4,400,net,8,256,adaptive
"""
CLUSTER = "2x4:slow+1x4:fast"


def write_profiles(folder, *, application="net", epochs=12):
    """An application whose steps take 0.1 s and 1 ms a sample, and more for an exchange."""
    folder = folder / application
    folder.mkdir(parents=True)
    for kind, speed in SPEEDS.items():
        rows = ["local_bsz,placement,step_time,sync_time"]
        shapes = [(one,) for one in range(1, NODE_GPUS + 1)]
        shapes += [
            pair for pair in product(range(1, NODE_GPUS + 1), repeat=2) if pair[0] <= pair[1]
        ]
        for shape in shapes:
            for batch in (16, 64, 256):
                alone = (0.1 + batch * 0.001) / speed
                sync = 0.01 * (sum(shape) > 1) + 0.05 * (len(shape) > 1)
                digits = "".join(map(str, shape))
                rows.append(f"{batch},{digits},{alone + sync},{sync}")
        (folder / f"placements-{kind}.csv").write_text("\n".join(rows) + "\n")
        more = [
            f"{nodes},{gpus},{batch},{(0.1 + batch * 0.001) / speed + 0.1},0.1"
            for nodes, gpus, batch in product((1, 3), (1, 12), (16, 256))
        ]
        head = "num_nodes,num_replicas,local_bsz,step_time,sync_time"
        (folder / f"scalability-{kind}.csv").write_text("\n".join([head, *more]) + "\n")
    for batch in (32, 128, 512):
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        for epoch in range(1, epochs + 1):
            sqr, var = 1.0, 2.0 + 0.5 * epoch
            lines.append(f"{1000 * epoch},{1000 * epoch * 32 / batch},0.5,{sqr},{var}")
        (folder / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    return folder.parent


def write_all(folder):
    """Profiles and a workload: the paths of both."""
    profiles = write_profiles(folder / "profiles")
    workload = folder / "jobs.csv"
    workload.write_text(WORKLOAD)
    return profiles, workload
