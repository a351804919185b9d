"""Rota's own job files, and SkyPilot's spellings."""

from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import InputError
from rota.jobfile.check import LONGEST_NAME, check
from rota.jobfile.model import Checkpoint, GpuRange, JobFile, Resources
from rota.jobfile.plain import with_values
from rota.jobfile.read import read_jobs, read_translated
from shared_data import CHECKOUT

EXAMPLES = CHECKOUT / "examples" / "jobs"
EVERYTHING = """
name: all
run: python train.py
setup: pip list
workdir: src
envs: {LR: 0.10, DEBUG: yes, WHEN: 1:30, MODE: 0755, EMPTY: ''}
resources: {gpus: 4, gpu_type: a100|h100, cpus: 16, mem: 64GB}
nodes: 2
per: gpu
queue: research
priority: -3
priority_class: batch
deadline: 1-12:00:00
estimate: 90m
group: g
model: bert
checkpoint: {grace_s: 60, dir: state}
retries: 2
depends_on: [1, 4]
hold: yes
speeds: {v100: 1, k80: 0.3}
interactive: no
upload: ''
secrets: []
time_limit: 2h30m
backoff: 30s
after_any: first
after_fail: [2, 3]
array: 0-9%4
notify: chat
notify_on: [end, fail]
image: docker.io/library/python:3.12
"""


def test_every_key():
    (job,) = read_jobs(EVERYTHING)

    assert job == JobFile(
        run="python train.py", name="all", setup="pip list", workdir="src",
        envs={"LR": "0.10", "DEBUG": "yes", "WHEN": "1:30", "MODE": "0755", "EMPTY": ""},
        resources=Resources(4, "a100|h100", 16.0, "64GB"), nodes=2, per="gpu", queue="research",
        priority=-3, deadline="1-12:00:00", estimate="90m", group="g", model="bert",
        checkpoint=Checkpoint(60.0, "state"), retries=2, depends_on=("1", "4"), hold=True,
        priority_class="batch", speeds={"v100": 1.0, "k80": 0.3},
        time_limit="2h30m", backoff="30s", after_any=("first",), after_fail=("2", "3"),
        array="0-9%4", notify=("chat",), notify_on=("end", "fail"),
        image="docker.io/library/python:3.12",
    )  # fmt: skip


def test_the_example_uses_every_key():
    fields = set(JobFile.__struct_fields__) - {"task", "external"}  # which only Rota writes
    assert set(yaml.safe_load(EVERYTHING)) == fields


def test_skypilots_image():
    (job,) = read_jobs("run: x\nresources: {gpus: 1, image_id: 'docker:python:3.12'}")
    assert job.image == "python:3.12"


def test_several_documents_and_lists():
    assert [job.run for job in read_jobs("run: a\n---\nrun: b\n---\n")] == ["a", "b"]
    assert [job.run for job in read_jobs('[{"run": "a"}, {"run": "b"}]')] == ["a", "b"]


def test_an_elastic_range():
    (job,) = read_jobs("run: x\nresources: {gpus: {min: 2, max: 8}}")
    assert job.resources.gpus == GpuRange(2, 8)


def test_merge_keys_and_anchors():
    text = "- &base {run: x, queue: q}\n- {<<: *base, name: other}\n"
    first, second = read_jobs(text)
    assert (first.queue, second.queue, second.name) == ("q", "q", "other")


def test_folders_are_meant_from_where_the_file_is(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "job.yaml"
    path.parent.mkdir()
    path.write_text("run: x\nworkdir: ../data\ncheckpoint: {dir: state}\n")
    (job,) = read_jobs(path)

    assert job.workdir == str(tmp_path / "data")
    assert job.checkpoint.dir == str(path.parent / "state")


# --- SkyPilot ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accelerators", "gpus", "kind"),
    [
        ("A100:8", 8, "A100"),
        ("A100", 1, "A100"),
        ("{A100: 8}", 8, "A100"),
        ("{A100: 2, H100: 2}", 2, "A100|H100"),
        ("[A100:4, H100:4]", 4, "A100|H100"),
        ("V100:0.5", 0.5, "V100"),
    ],
)
def test_accelerators(accelerators, gpus, kind):
    (job,) = read_jobs(f"run: x\nresources: {{accelerators: {accelerators}}}")
    assert (job.resources.gpus, job.resources.gpu_type) == (gpus, kind)


def test_what_belongs_to_clouds_is_told():
    text = (
        "run: x\nnum_nodes: 2\nresources: {use_spot: true, memory: 64+, cpus: 8+}\nconfig: {a: b}"
    )
    (found,) = read_translated(text)

    assert found.job.nodes == 2
    assert found.job.resources == Resources(cpus=8.0, mem="64")
    assert found.warnings == (
        "job: config belongs to clouds: it is left out",
        "job: resources: use_spot belongs to clouds: it is left out",
    )


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "job: holds no job: it needs at least the key 'run'"),
        ("name: x", "job: there is no key 'run'"),
        ("run: ' '", "job: run is empty: write what the job executes"),
        ("run: x\nrun: y", "line 2: is not YAML (the key 'run' comes twice)"),
        ("run: x\nresorces: 1", "unknown key 'resorces': did you mean 'resources'?"),
        ("run: x\nresources: {gpu: 2}", "did you mean 'gpus'?"),
        ("run: x\nresources: 4", "resources is '4': give keys and values under it"),
        ("run: x\nresources: {gpus: many}", "resources: gpus is 'many'"),
        ("run: x\nresources: {gpus: -1}", "gpus is -1: give 0 or more"),
        ("run: x\nresources: {gpus: .nan}", "gpus is '.nan'"),
        ("run: x\nresources: {gpus: nan}", "gpus is nan: give 0 or more"),
        ("run: x\nresources: {gpus: inf}", "gpus is inf: give 0 or more"),
        ("run: x\nresources: {gpus: 1.5}", "give a whole number, or less than 1"),
        ("run: x\nresources: {gpus: 0.12345678}", "at most 6 digits"),
        ("run: x\nresources: {gpus: 1000000}", "at most 100,000"),
        ("run: x\nresources: {gpus: {min: 4, max: 2}}", "gpus is 4 to 2"),
        ("run: x\nresources: {gpus: {min: 0, max: 2}}", "min must be 1 or more"),
        ("run: x\nresources: {gpus: {min: 1}}", "missing required field max"),
        ("run: x\nresources: {mem: lots}", "mem is 'lots': give GiB"),
        ("run: x\nresources: {gpu_type: 'a||b'}", "write names with | between them"),
        ("run: x\nresources: {gpus: 2, accelerators: A100:2}", "give only one of them"),
        ("run: x\nresources: {accelerators: {A100: 1, H100: 2}}", "needs the same number"),
        ("run: x\nnodes: 0", "nodes is 0: give 1 to 10,000"),
        ("run: x\nnodes: 2\nnum_nodes: 2", "give only one of them"),
        ("run: x\nnodes: 2\nresources: {gpus: {min: 1, max: 2}}", "leave nodes out"),
        ("run: x\nnodes: 2\nresources: {gpus: 0.5}", "several nodes need 1 GPU or more each"),
        ("run: x\nper: core", "per is 'core': give node or gpu"),
        ("run: x\nper: gpu\nresources: {gpus: 0}", "ask for GPUs or leave per out"),
        ("run: x\nenvs: {A B: 1}", "'A B' is not a name"),
        ("run: x\nenvs: {1A: 1}", "'1A' is not a name"),
        ("run: x\nenvs: {A: }", "'A' has no value"),
        ("run: x\nenvs: {A: [1]}", "give a text"),
        ("run: x\ncheckpoint: {grace_s: -1}", "grace_s is -1: give 0 to 86,400"),
        ("run: x\nretries: 5000", "retries is 5000: give 0 to 1,000"),
        ("run: x\nretries: 1.5", "retries is '1.5'"),
        ("run: x\nhold: perhaps", "hold is 'perhaps'"),
        ("run: x\nestimate: soon", "estimate is 'soon': give seconds or a time such as 90m"),
        ("run: x\ndeadline: 0", "deadline is '0': give more than 0"),
        ("run: x\nworkdir: ../../etc", "write it without '..'"),
        ('run: x\nname: "a\\nb"', "control characters are not allowed"),
        ('run: x\nname: "\\u202egpj"', "control characters are not allowed"),
        (f"run: x\nname: {'n' * (LONGEST_NAME + 1)}", "shorten it to 200 or fewer"),
        ('run: x\nqueue: " a"', "remove the blanks around it"),
        ("run: x\nsecrets: {A: b}", "and list the names only"),
        ("run: x\nfile_mounts: {a: b}", "files are not copied"),
        ('run: "a\\0b"', "has a zero character"),
        ("run: [a", "is not YAML"),
        ("just text", "give keys, of run,"),
        ("run: !!python/object:os.system x", "is not YAML"),
        ("run: !!int x", "is not YAML"),
        ("[" * 3000, "is nested too deeply"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text, message):
    with pytest.raises(InputError) as caught:
        read_jobs(text)
    assert message in str(caught.value)


def test_the_file_and_the_number_of_the_job_are_named(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text("run: a\n---\nrun: b\nnodes: none\n")
    with pytest.raises(InputError, match=r"two\.yaml: job 2: nodes is 'none'"):
        read_jobs(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no such file"), (b"\xff\xfe", "is not UTF-8"), (b"\xef\xbb\xbfrun: x", "")],
)
def test_files(tmp_path, content, message):
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    if message:
        with pytest.raises(InputError, match=message):
            read_jobs(path)
    else:
        assert read_jobs(path)[0].run == "x"
    with pytest.raises(InputError, match="is a folder"):
        read_jobs(tmp_path)


def test_a_bomb_of_aliases_is_refused_in_a_moment():
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9)]
    with pytest.raises(InputError, match="unknown key 'a'"):
        read_jobs("\n".join(lines))
    with pytest.raises(InputError, match="envs: 'A' is"):
        read_jobs("run: x\n" + "\n".join(lines[:1]).replace("a:", "envs: {A:") + "}")


# --- settings ------------------------------------------------------------------------------------


def test_settings_change_keys():
    job = JobFile(run="x", envs={"A": "1"})
    changed = with_values(
        job,
        ["queue=q: x", "name=yes", "depends_on=[1, 2]", "resources.gpus={min: 2, max: 4}",
         "envs.LR=0: 1", "hold=yes", "run=a: b",
         "checkpoint.grace_s=5"],
    )  # fmt: skip

    assert changed == JobFile(
        run="a: b", envs={"A": "1", "LR": "0: 1"}, queue="q: x", name="yes", hold=True,
        depends_on=("1", "2"),
        resources=Resources(GpuRange(2, 4)), checkpoint=Checkpoint(5.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("queue", "write key=value"),
        ("qeue=1", "did you mean 'queue'?"),
        ("resources.gpu=1", "did you mean 'gpus'?"),
        ("queue.x=1", "has no keys of its own"),
        ("resources.gpus=[", "put it in quotes"),
        ("resources=3", "give keys"),
        ("nodes=none", "nodes is 'none'"),
    ],
)
def test_settings_that_are_wrong(setting, message):
    with pytest.raises(InputError) as caught:
        with_values(JobFile(run="x"), [setting])
    assert message in str(caught.value)


# --- properties ----------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=30)
# YAML takes these for line breaks, and its writer does not give them back as they were.
BREAKS = "\x85\u2028\u2029"
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0" + BREAKS), min_size=1
)
JOBS = st.builds(
    JobFile,
    run=TEXTS.filter(str.strip),
    name=NAMES,
    queue=NAMES,
    envs=st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,9}", fullmatch=True), TEXTS, max_size=3),
    resources=st.builds(
        Resources,
        st.one_of(
            st.integers(1, 64),
            st.sampled_from([0.5, 0.25]),
            st.tuples(st.integers(1, 4), st.integers(4, 64)).map(lambda pair: GpuRange(*pair)),
        ),
        st.sampled_from(["", "a100", "a100|h100"]),
        st.integers(0, 64).map(float),
        st.sampled_from(["64GB", "512M"]),
    ),
    priority=st.integers(-5, 5),
    estimate=st.sampled_from(["90m", "2h30m", None]),
    checkpoint=st.builds(Checkpoint, st.floats(0, 100)),
    retries=st.integers(0, 5),
    depends_on=st.lists(NAMES.filter(bool), max_size=3).map(tuple),
    hold=st.booleans(),
)


@given(JOBS)
def test_a_job_written_as_yaml_or_json_is_read_back(job):
    check(job)
    plain = msgspec.to_builtins(job)
    assert read_jobs(yaml.safe_dump(plain, allow_unicode=True)) == [job]
    assert msgspec.json.decode(msgspec.json.encode(job), type=JobFile) == job


@given(st.one_of(st.text(), st.text().map(lambda text: f"run: x\n{text}")))
def test_any_text_is_read_or_refused(text):
    try:
        read_translated(text)
    except InputError as error:
        assert str(error)  # noqa: PT017 - anything else would escape


KEYS = st.sampled_from([*JobFile.__struct_fields__, "gpus", "min", "max", "mem", "num_nodes"])
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
        st.sampled_from(["1e400", "9" * 400, "-0", "0x10", "1_000", "=", "<<", "~", "1:2:3"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_values_are_read_or_refused(content):
    try:
        found = read_translated(yaml.safe_dump({"run": "x"} | content))
    except InputError as error:
        assert str(error)  # noqa: PT017 - anything else would escape
    else:
        for item in found:
            check(item.job)


@given(st.lists(st.text(max_size=20)))
def test_any_settings_are_taken_or_refused(settings):
    try:
        assert isinstance(with_values(JobFile(run="x"), settings), JobFile)
    except InputError as error:
        assert str(error)  # noqa: PT017 - anything else would escape


# --- the examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_examples_are_understood(path: Path):
    jobs = read_jobs(path)
    assert jobs
    assert len({job.run for job in jobs} | {job.name for job in jobs}) > 1


def test_single_speeds_can_be_set():
    job = JobFile(run="x", speeds={"v100": 1.0})
    assert with_values(job, ["speeds.k80=0.5"]).speeds == {"v100": 1.0, "k80": 0.5}
    assert with_values(job, ["speeds={k80: 0.25}"]).speeds == {"k80": 0.25}
    with pytest.raises(InputError, match="speeds"):
        with_values(job, ["speeds.k80=fast"])
