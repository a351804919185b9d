"""A cluster's own logs, for tests: lines of sacct and what scontrol says of nodes."""

HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|Priority|Submit|Eligible|Start|End|State|ElapsedRaw|"
    "TimelimitRaw|ReqTRES|AllocTRES|NNodes|NodeList|SubmitLine"
)
DAY = "2026-03-02T"


def line(job="1", **cells):
    """One line of sacct: a job of 2 GPUs that ran from 8:00:10 to 8:01:40 on n1."""
    told = {
        "JobID": job, "JobIDRaw": job, "JobName": "train", "User": "ann", "Account": "vision",
        "Partition": "gpu", "QOS": "normal", "Priority": "", "Submit": DAY + "08:00:00",
        "Eligible": DAY + "08:00:00", "Start": DAY + "08:00:10", "End": DAY + "08:01:40",
        "State": "COMPLETED", "ElapsedRaw": "90", "TimelimitRaw": "60",
        "ReqTRES": "billing=2,cpu=4,gres/gpu=2,mem=8G,node=1",
        "AllocTRES": "billing=2,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1",
        "NNodes": "1", "NodeList": "n1", "SubmitLine": "sbatch job.sh",
    } | cells  # fmt: skip
    return "|".join(told[title] for title in HEADER.split("|"))


NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUTot=16 CPULoad=0.10
   ActiveFeatures=fast,nvlink
   Gres=gpu:a100:4(S:0-1)
   RealMemory=65536 AllocMem=0
   Partitions=gpu,debug

NodeName=n2 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUTot=16 CPULoad=0.10
   ActiveFeatures=(null)
   Gres=gpu:a100:4
   RealMemory=65536
   Partitions=gpu
"""
