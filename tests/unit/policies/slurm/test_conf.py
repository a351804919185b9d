import pytest

from rota.core.errors import OptionError
from rota.core.events import INF
from rota.engine.parts import make_policy
from rota.policies.slurm.conf import read_assoc, read_conf, read_qos, seconds

CONF = """\
ClusterName=hpc
AccountingStorageEnforce=associations,limits,qos   # all of them
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=60,bf_window=2880,bf_max_job_test=1000,\\
bf_busy_nodes,max_rpc_cnt=150
PriorityType=priority/multifactor
PriorityDecayHalfLife=14-0
PriorityMaxAge=3-12:00:00
PriorityCalcPeriod=10
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightTRES=CPU=100,GRES/gpu=2000
PriorityFlags=MAX_TRES,NO_FAIR_TREE
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=00:30:00
TopologyPlugin=topology/tree
NodeName=n[01-04] Gres=gpu:a100:8 CPUs=64
PartitionName=DEFAULT MaxTime=2-00:00:00 TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=4.0"
PartitionName=gpu Nodes=n[01-02] Default=YES PriorityTier=10 PriorityJobFactor=5 AllowQos=a,b
PartitionName=debug Nodes=n03 MaxTime=60 DefaultTime=00:10:00 MaxNodes=1 OverSubscribe=FORCE:4
"""
QOS = """\
Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|UsageFactor|GrpTRES|MaxWall|MaxTRESPU|MaxJobsPU
normal|100|00:00:00|low||cluster|1.000000|cpu=100,gres/gpu=64|2-00:00:00|gres/gpu=16|20
low|0|00:05:00|||cancel|0.500000||||
"""
ASSOC = """\
Cluster|Account|User|Partition|Share|GrpTRES|MaxJobs|QOS|Def QOS
hpc|root|||1|||normal|
hpc| research|||60|gres/gpu=100||normal|
hpc|  vision|||parent|||normal|normal
hpc|  vision|ada||3||4|normal|normal
hpc| guests|||40|||low|low
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 1800), ("5:30", 330), ("1:00:00", 3600), ("7-0", 604_800), ("1-02:03:04", 93_784),
        ("UNLIMITED", INF),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_writes_them(text, expected):
    assert seconds(text, "MaxTime") == expected


def files(tmp_path, **texts):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return "slurm:" + ",".join(f"{name}={tmp_path / name}" for name in texts)


def test_the_files_of_a_cluster_become_parameters(tmp_path):
    params = make_policy(files(tmp_path, conf=CONF, qos=QOS, assoc=ASSOC)).params
    assert (params.weight_age, params.weight_fairshare) == (1000, 10_000)
    assert (params.weight_tres.cpu, params.weight_tres.gpu) == (100, 2000)
    assert (params.half_life_s, params.max_age_s, params.calc_period_s) == (1_209_600, 302_400, 600)
    assert (params.bf_interval_s, params.bf_window_s, params.bf_max_job_test) == (60, 172_800, 1000)
    assert (params.preempt, params.preempt_mode, params.preempt_exempt_s) == (
        "qos",
        "requeue",
        1800,
    )
    assert not params.fair_tree
    assert params.enforce_limits
    gpu, debug = params.partitions
    assert (gpu.default, gpu.priority_tier, gpu.priority_job_factor) == (True, 10, 5)
    assert (gpu.max_time_s, gpu.allow_qos) == (172_800, ("a", "b"))
    assert gpu.billing is not None
    assert (gpu.billing.cpu, gpu.billing.mem_gib, gpu.billing.gpu) == (1.0, 0.25, 4.0)
    assert (debug.max_time_s, debug.default_time_s, debug.max_nodes) == (3600, 600, 1)
    normal, low = params.qos
    assert (normal.priority, normal.preempt, normal.max_wall_s) == (100, ("low",), 172_800)
    assert (normal.grp_tres.cpu, normal.grp_tres.gpu, normal.grp_tres.node) == (100, 64, INF)
    assert (normal.max_tres_per_user.gpu, normal.max_jobs_per_user) == (16, 20)
    assert (low.preempt_mode, low.usage_factor) == ("cancel", 0.5)
    by_name = {(one.account, one.user): one for one in params.associations}
    assert by_name["vision", ""].parent == "research"
    assert by_name["vision", ""].shares is None
    assert by_name["vision", "ada"].shares == 3
    assert by_name["vision", "ada"].max_jobs == 4
    assert by_name["research", ""].grp_tres.gpu == 100
    assert by_name["guests", ""].default_qos == "low"


def test_what_is_not_modelled_is_named(tmp_path):
    params = make_policy(files(tmp_path, conf=CONF, qos=QOS, assoc=ASSOC)).params
    assert params.not_modelled == (
        "TopologyPlugin=topology/tree",
        "PriorityFlags=MAX_TRES",
        "SchedulerParameters=bf_busy_nodes",
        "partition debug: oversubscribe=FORCE:4",
        "QOS low: GraceTime=00:05:00",
    )


def test_what_is_not_modelled_is_among_the_assumptions_of_a_run(tmp_path):
    from rota.study.config import RunConfig
    from rota.study.run import simulate

    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\n")
    policy = files(tmp_path, conf=CONF)
    summary = simulate(RunConfig(trace=str(trace), cluster="1x1", policy=policy)).summary
    assert "TopologyPlugin=topology/tree" in summary["assumptions"]["policy"]["not_modelled"]


def test_without_enforcement_limits_do_not_hold():
    assert read_conf("ClusterName=hpc\nAccountingStorageEnforce=associations\n") == {
        "enforce_limits": False
    }


def test_partitions_as_scontrol_shows_them():
    text = (
        "PartitionName=gpu\n   AllowGroups=ALL AllowAccounts=vision,speech AllowQos=ALL\n"
        "   MaxNodes=UNLIMITED MaxTime=1-00:00:00 PriorityJobFactor=1 PriorityTier=3\n"
    )
    (gpu,) = read_conf(text)["partitions"]
    assert (gpu["allow_accounts"], gpu["max_time_s"]) == (["vision", "speech"], 86_400)
    assert gpu["priority_tier"] == 3


def test_by_hand_and_beside_a_file(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "weight_age: 100\nbf_interval_s: 10\n"
        "qos:\n  - {name: high, priority: 10, preempt: [low]}\n"
        "partitions:\n  - {name: gpu, priority_tier: 2}\n"
    )
    params = make_policy(f"slurm:settings={settings},bf_interval_s=45").params
    assert (params.weight_age, params.bf_interval_s) == (100, 45)
    assert params.qos[0].preempt == ("low",)
    assert params.partitions[0].priority_tier == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("conf", "nothing here\n", "has no line KEY=VALUE"),
        ("conf", "PriorityWeightAge=many\n", "PriorityWeightAge=many is not a number"),
        ("conf", "PriorityMaxAge=soon\n", "PriorityMaxAge=soon is not a time"),
        ("conf", "PreemptType=preempt/luck\n", "none, qos, partition_prio"),
        ("qos", "Priority\n1\n", "has no column 'Name'"),
        ("qos", "Name|Priority\nhigh|1|2\n", "line 2 has 3 fields"),
        ("assoc", "", "has no column 'Account'"),
        ("settings", "- 1\n", "has no keys"),
        ("settings", "weight_luck: 1\n", "unknown parameter 'weight_luck'"),
        ("settings", "qos: [{name: a, priority: x}]\n", "qos"),
    ],
)
def test_errors_name_the_file_the_value_and_the_remedy(tmp_path, name, text, message):
    with pytest.raises(OptionError, match=f"(?s){name}=.*{message}"):
        make_policy(files(tmp_path, **{name: text}))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(OptionError, match=r"conf=nowhere\.conf cannot be read"):
        make_policy("slurm:conf=nowhere.conf")


def test_the_tables_can_be_read_alone():
    assert [one["name"] for one in read_qos(QOS)["qos"]] == ["normal", "low"]
    assert len(read_assoc(ASSOC)["associations"]) == 5
