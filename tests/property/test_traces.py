"""Traces: whatever is written is read back, and every line number is right."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.workload import Workload
from rota.traces.read import read_workload
from rota.traces.synth.generate import KINDS, generate, offered_load
from rota.traces.write import write_workload

# Anything printable, with what CSV finds difficult made likely.
CHARACTERS = st.one_of(
    st.sampled_from("\"',;\n\r\t #|"), st.characters(exclude_categories=("C", "Z"))
)
TEXTS = st.text(CHARACTERS, max_size=6).map(str.strip)
WORDS = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=4)
SECONDS = st.floats(0, 1e12, allow_subnormal=False)
POSITIVE = st.floats(1e-3, 1e12)
AMOUNTS = st.one_of(st.just(0.0), st.integers(1, 999).map(float), st.floats(0.001, 1e4))
FRACTIONS = st.floats(0.001, 0.999)


@st.composite
def requests(draw):
    gpus = draw(st.one_of(st.integers(0, 64), FRACTIONS))
    cpus = draw(AMOUNTS)
    if not gpus and not cpus:
        cpus = 1.0
    return Request.of(
        gpus,
        gpu_types=tuple(draw(st.lists(WORDS, max_size=2))),
        cpus=cpus,
        mem_gib=draw(AMOUNTS),
        gang=draw(st.booleans()),
        min_gpus=draw(st.integers(0, int(gpus))),
        max_gpus=draw(st.one_of(st.just(0), st.integers(max(1, int(gpus)), 999))),
    )


@st.composite
def workloads(draw):
    ids = draw(st.lists(WORDS, min_size=1, max_size=6, unique=True))
    specs = []
    for number, name in enumerate(ids):
        submit_s = draw(SECONDS)
        specs.append(
            JobSpec(
                name,
                submit_s,
                draw(requests()),
                *(draw(TEXTS) for _ in range(5)),
                priority=draw(st.integers(-(2**40), 2**40)),
                deadline_s=draw(st.one_of(st.just(float("inf")), st.floats(submit_s, 1e13))),
                estimate_s=draw(st.one_of(st.just(float("inf")), POSITIVE)),
                depends_on=tuple(draw(st.lists(st.sampled_from(ids[:number]), max_size=2)))
                if number
                else (),
                account=draw(TEXTS),
                partition=draw(TEXTS),
                qos=draw(TEXTS),
            )
        )
    behaviours = draw(st.lists(POSITIVE.map(Behaviour), min_size=len(ids), max_size=len(ids)))
    return Workload(specs, behaviours)


@given(workloads())
def test_what_is_written_is_read_back_equal(workload):
    with tempfile.TemporaryDirectory() as folder:
        path = write_workload(workload, Path(folder) / "jobs.csv")
        again = read_workload(path)
        first = path.read_bytes()
        write_workload(again, path, force=True)
        assert path.read_bytes() == first
    assert again.specs == workload.specs
    assert again.behaviours == workload.behaviours


@given(
    st.lists(st.tuples(st.text('a"\n\r, ', max_size=5), st.integers(0, 2)), min_size=1, max_size=8),
    st.data(),
)
def test_a_bad_cell_is_found_on_its_line(rows, data):
    bad = data.draw(st.integers(0, len(rows) - 1))
    lines = ["job_id,submit_s,num_gpus,duration_s,name\n"]
    for number, (name, blank_lines) in enumerate(rows):
        quoted = name.replace('"', '""')
        submit = "-1" if number == bad else "1"
        lines.append("\n" * blank_lines + f'{number},{submit},1,1,"{quoted}"\n')
    text = "".join(lines)
    before = "".join(lines[: bad + 1]) + "\n" * rows[bad][1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        path.write_bytes(text.encode())
        with pytest.raises(TraceError) as caught:
            read_workload(path)
    # Editors and csv end a line at \n, \r\n or \r.
    line = before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert f"jobs.csv: line {line}, column 'submit_s': '-1' is less than 0" in str(caught.value)


@given(st.binary(max_size=300))
def test_garbage_is_refused_without_a_crash(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        path.write_bytes(data)
        for format_text in (None, "csv", "tiresias", "philly"):
            with pytest.raises(TraceError):
                read_workload(path, format_text)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    jobs=st.integers(60, 400),
    gpus=st.integers(1, 64),
    load=st.floats(0.1, 2.0),
    seed=st.integers(0, 2**32),
)
def test_every_generated_load_is_within_one_percent(kind, jobs, gpus, load, seed):
    workload = generate(kind, jobs=jobs, gpus=gpus, load=load, seed=seed, options={})
    assert offered_load(workload, gpus) == pytest.approx(load, rel=0.01)
