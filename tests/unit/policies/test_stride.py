"""Stride scheduling: shares within a bound, gangs that are neither starved nor in the way."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rota.policies.gandiva_fair.stride import Stride, deal

QUANTUM_S = 60.0


def play(users, gpus, rounds, tickets):
    """Deal quanta among users with gangs (lists of sizes) that never end; GPU-seconds, by user.

    A user's own gangs take turns.
    """
    stride = Stride()
    stride.present(users)
    turns = {user: Stride() for user in users}
    for user, gangs in users.items():
        turns[user].present(range(len(gangs)))
    received = dict.fromkeys(users, 0.0)
    ran = {(user, number): 0 for user, gangs in users.items() for number in range(len(gangs))}
    numbers = {key: at for at, key in enumerate(ran)}
    names = list(ran)
    for _ in range(rounds):
        queues = {
            user: [
                (numbers[user, number], gangs[number])
                for number in sorted(range(len(gangs)), key=turns[user].passes.__getitem__)
            ]
            for user, gangs in users.items()
        }
        chosen = [names[at] for at in deal(stride.passes, tickets, queues, gpus, QUANTUM_S)]
        assert sum(users[user][number] for user, number in chosen) <= gpus
        for user, number in chosen:
            size = users[user][number]
            stride.charge(user, size * QUANTUM_S / tickets[user])
            turns[user].charge(number, QUANTUM_S)
            received[user] += size * QUANTUM_S
            ran[user, number] += 1
    return received, ran


tickets = st.lists(st.floats(0.25, 8), min_size=2, max_size=5)


@given(tickets=tickets, size=st.integers(1, 4), gangs=st.integers(1, 4))
def test_tickets_are_honoured_within_two_gangs_for_a_quantum(tickets, size, gangs):
    """Everybody has more gangs than the cluster could hold, and they leave no GPU idle."""
    users = {f"u{n}": [size] * 5 for n in range(len(tickets))}
    weight = dict(zip(users, tickets, strict=True))
    received, _ = play(users, size * gangs, 60, weight)
    per_ticket = {user: received[user] / weight[user] for user in users}
    for one in users:
        for other in users:
            bound = (size / weight[one] + size / weight[other]) * QUANTUM_S
            assert abs(per_ticket[one] - per_ticket[other]) <= bound + 1e-6


@given(
    tickets=tickets,
    gpus=st.integers(1, 8),
    sizes=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=4), min_size=5, max_size=5),
    passes=st.lists(st.floats(0, 1e4), min_size=5, max_size=5),
)
def test_the_smallest_pass_is_served_and_nothing_idles_that_anybody_could_use(
    tickets, gpus, sizes, passes
):
    users = [f"u{n}" for n in range(len(tickets))]
    size = {10 * n + i: min(g, gpus) for n in range(len(users)) for i, g in enumerate(sizes[n])}
    queues = {u: [(j, size[j]) for j in size if j // 10 == n] for n, u in enumerate(users)}
    now = dict(zip(users, passes, strict=False))
    chosen = list(deal(now, dict(zip(users, tickets, strict=True)), queues, gpus, QUANTUM_S))
    least = min(users, key=now.__getitem__)
    assert queues[least][0][0] == chosen[0]
    left = gpus - sum(size[job] for job in chosen)
    assert left >= 0
    assert all(size[job] > left for job in size if job not in chosen)


def test_a_gang_as_large_as_the_cluster_is_not_starved():
    received, ran = play({"big": [8], "small": [1] * 20}, 8, 100, {"big": 1.0, "small": 1.0})
    assert abs(received["big"] - received["small"]) <= 8 * QUANTUM_S
    assert ran["big", 0] == 50


def test_small_jobs_use_what_a_gang_leaves():
    users = {"big": [6, 6], "small": [2, 2, 2]}
    _, ran = play(users, 8, 60, {"big": 1.0, "small": 1e-3})
    assert sum(ran["small", n] for n in range(3)) >= 60  # beside the gang in every quantum


def test_users_without_tickets_get_what_is_left_over():
    chosen = deal({"a": 9.0}, {"a": 1.0}, {"b": [(7, 2)], "a": [(8, 3)]}, 4, QUANTUM_S)
    assert list(chosen) == [8]
    chosen = deal({"a": 9.0}, {"a": 1.0}, {"b": [(7, 2)], "a": [(8, 2)]}, 4, QUANTUM_S)
    assert list(chosen) == [8, 7]


def test_newcomers_have_neither_saved_up_nor_owe_anything():
    stride = Stride()
    stride.present(["a", "b"])
    stride.charge("a", 100)
    stride.charge("b", 40)
    stride.charge("gone", 1)
    stride.present(["a", "b", "new"])
    assert stride.passes == {"a": 100, "b": 40, "new": 40}
    stride.present(["new"])
    assert stride.passes == {"new": 40}


def test_who_has_all_that_it_wants_saves_up_nothing():
    stride = Stride()
    stride.present(["content", "hungry"])
    stride.charge("hungry", 100)
    stride.settle(["hungry"])
    assert stride.passes == {"content": 100, "hungry": 100}
    stride.settle([])
    assert stride.passes == {"content": 100, "hungry": 100}


def test_passes_survive_as_plain_data():
    stride = Stride()
    stride.present(["a"])
    stride.charge("a", 3)
    again = msgspec.convert(msgspec.to_builtins(stride), Stride[str])
    assert again.passes == stride.passes
