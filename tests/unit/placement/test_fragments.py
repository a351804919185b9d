"""F, the measure of fragmentation: by hand, and arrays against one state at a time."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.jobs import Request
from rota.placement.fragments import FEW, JobClass, Target
from shared_data import shared

TYPES = ["", "A", "B"]


def fragments(target, kind, cpu, gpus):
    accepts = target.accepts(TYPES)
    return target.fragments(np.array([kind]), np.array([cpu]), np.array([gpus]), accepts)[0]


@pytest.mark.parametrize(
    ("asks", "useless"),
    [
        (JobClass(1000, 500, 1), 300),  # fits on two of three GPUs: only the small rest is useless
        (JobClass(1000, 1000, 1), 900),  # on one
        (JobClass(1000, 1000, 2), 1900),  # not at all
        (JobClass(9000, 500, 1), 1900),  # not enough CPUs
        (JobClass(9000, 1000, 2), 1900),  # neither
        (JobClass(1000, 500, 1, ("B",)), 1900),  # not this type
        (JobClass(1000, 500, 1, ("A", "B")), 300),
        (JobClass(1000, 0, 0), 1900),  # no use for GPUs
        (JobClass(9000, 0, 0), 1900),
    ],
)
def test_one_class_by_hand(asks, useless):
    assert fragments(Target([asks], [1.0]), 1, 8000, [1000, 300, 600, 0]) == useless


def test_classes_count_by_their_weight():
    target = Target([JobClass(0, 500, 1), JobClass(0, 1000, 1)], [0.25, 0.75])
    assert fragments(target, 0, 0, [1000, 300]) == 300
    assert fragments(target, 0, 0, [700, 300]) == pytest.approx(0.25 * 300 + 0.75 * 1000)
    assert fragments(Target([], []), 0, 0, [700, 300]) == 0


def test_a_target_workload_is_what_most_jobs_ask_for():
    counts = [(JobClass(n, 1000, 1), many) for n, many in ((1, 60), (2, 30), (3, 6), (4, 4))]
    target = Target.popular([*counts, (JobClass(1, 1000, 1), 0)])
    assert [each.cpu for each in target.classes] == [1, 2, 3]
    assert target.weights.tolist() == pytest.approx([60 / 96, 30 / 96, 6 / 96])
    ties = Target.popular([(JobClass(n, 1000, 1), 1) for n in (1, 2)])
    assert [each.cpu for each in ties.classes] == [2, 1]


def test_what_requests_ask_of_a_node():
    assert JobClass.of(Request.of(0.46, cpus=3.152)) == JobClass(3152, 460, 1)
    assert JobClass.of(Request.of(3, cpus=6, gpu_types=("A",))) == JobClass(6000, 1000, 3, ("A",))
    assert JobClass.of(Request.of(0, cpus=0.1 + 0.2)) == JobClass(300, 0, 0)
    assert JobClass.of(Request.of(0.0001)) == JobClass(0, 1, 1)


CLASSES = st.builds(
    JobClass,
    st.integers(0, 8000),
    st.sampled_from([300, 500, 810]),
    st.just(1),
    st.sampled_from([(), ("A",), ("A", "B")]),
) | st.one_of(
    st.builds(JobClass, st.integers(0, 8000), st.just(1000), st.integers(1, 4)),
    st.builds(JobClass, st.integers(0, 8000), st.just(0), st.just(0)),
)


@given(
    weighted=st.lists(st.tuples(CLASSES, st.floats(0.01, 1)), min_size=1, max_size=6),
    states=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 9000),
            st.lists(st.integers(0, 1000), min_size=4, max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_few_states_and_many_give_the_same_bits(weighted, states):
    target = Target([each for each, _ in weighted], [weight for _, weight in weighted])
    accepts = target.accepts(TYPES)
    kind, cpu, gpus = (np.array(column) for column in zip(*states, strict=True))
    few = target.fragments(kind, cpu, gpus, accepts)
    assert few.tolist() == target.measure(cpu, gpus, accepts[kind]).tolist()
    other = Target(target.classes, target.weights.tolist())
    many = np.resize(np.arange(len(states)), FEW + 1)
    found = other.fragments(kind[many], cpu[many], gpus[many], accepts)
    assert found[: len(states)].tolist() == few.tolist()
    assert (few <= gpus.sum(axis=1) * target.weights.sum() + 1e-6).all()


def test_the_published_target_workload():
    with shared("data/openb/openb_pod_list_default.csv").open() as file:
        pods = list(csv.DictReader(file))
    counts = [
        (
            JobClass(
                int(pod["cpu_milli"]), int(pod["gpu_milli"]), int(pod["num_gpu"]),
                tuple(filter(None, pod["gpu_spec"].split("|"))),
            ),
            1,
        )
        for pod in pods
    ]  # fmt: skip
    target = Target.popular(counts)
    with shared("reference/fgd/typical_pods_default.csv").open() as file:
        theirs = list(csv.DictReader(file))
    ours = [(str(k.cpu), str(k.part), str(k.gpus), "|".join(k.types)) for k in target.classes]
    assert ours == [
        (row["cpu_milli"], row["gpu_milli"], row["num_gpu"], row["gpu_spec"]) for row in theirs
    ]
    assert target.weights.tolist() == pytest.approx([float(row["fraction"]) for row in theirs])
