"""A program for a mount namespace of its own: jobs in containers of the real podman.

It prints JSON. As images there are folders with the programs of the host.
"""

import json
import sys
import tempfile
from pathlib import Path

from agents_net import Bench, eventually, marked
from rota.live.agent.containers import find_engine, make_root
from rota.live.calls import OpenChannel
from sandboxes import account_of, sandbox


def main(root):
    """Run some jobs; what came of them."""
    engine, why = find_engine("auto", ["/usr", str(root / "image")])
    if engine is None:
        return {"why": why}
    image = root / "image"
    image.mkdir(exist_ok=True)
    make_root(image)
    bench = Bench(root / "bench", account=account_of)
    bench.add(gpus=2, sandbox=sandbox(root / "bench/m0"), containers=engine)
    found = {"engine": engine.kind}
    script = "id -u; ls /; grep -e NoNewPrivs -e CapBnd /proc/self/status; df /dev/shm; exit 7"
    bench.launch("1.0", script, user="ann", image=str(image))
    found["code"], found["out"] = bench.told.end("1.0").code, bench.output("1")
    script = "trap 'echo told; exit 3' TERM; touch ready; while :; do sleep 0.1; done"
    bench.launch("2.0", script, user="ann", image=str(image))
    work = root / "bench/m0/jobs/2/work"
    eventually((work / "ready").exists)
    bench.driver.reach("2", 0, OpenChannel("c", ("sh", "-c", "ls / > list; mv list listed")))
    eventually((work / "listed").exists)
    found["inside"] = (work / "listed").read_text()
    bench.driver.halt("2.0")
    found["halted"] = bench.told.end("2.0").code
    bench.launch("3.0", "true", user="ann", image="localhost/rota/nowhere:1")
    found["missing"] = bench.told.end("3.0").why
    bench.launch("4.0", "touch ready; exec sleep 1000", user="ann", image=str(image))
    eventually((root / "bench/m0/jobs/4/work/ready").exists)
    key = bench.key("4.0")
    bench.driver.kill("4.0")
    found["killed"] = bench.told.end("4.0").state
    found["left"] = marked(key)
    bench.close()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "bench").mkdir()
        sys.stdout.write(json.dumps(main(Path(folder))))
