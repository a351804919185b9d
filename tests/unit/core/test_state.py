"""Private state of policies: saved with its version, migrated or refused."""

from typing import ClassVar

import msgspec
import pytest

from rota.core.errors import StateError
from rota.core.policy import Params, Policy
from rota.core.state import State, Stateful


class Served(State):
    seconds: dict[int, float] = {}
    pairs: dict[tuple[str, int], float] = {}
    late: set[int] = set()


class Fair(Policy[Params]):
    name = "fair"

    def __init__(self, params=None):
        super().__init__(params)
        self.state: Served = Served()
        self.total = 0.0

    def resumed(self):
        self.total = sum(self.state.seconds.values())


class Renamed(State):
    version: ClassVar[int] = 3
    seconds: dict[int, float] = {}

    @classmethod
    def migrate(cls, version, fields):
        return {"seconds": fields["served"]} if version == 2 else None


class Newer(Fair):
    def __init__(self, params=None):
        super().__init__(params)
        self.state: Renamed = Renamed()


def written_and_read(saved):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(saved))


def test_what_was_saved_is_taken_up_again_with_its_types():
    policy, again = Fair(), Fair()
    policy.state.seconds[3] = 2.5
    policy.state.pairs["a", 1] = 0.5
    policy.state.late |= {4, 7}
    saved = policy.snapshot()
    again.restore(written_and_read(saved))
    assert (again.state, again.total) == (policy.state, 2.5)
    policy.state.seconds[3] = 9.0  # a snapshot is a copy
    assert Served.load(saved, "it").seconds == {3: 2.5}


def test_every_instance_has_a_state_of_its_own():
    one, other = Fair(), Fair()
    one.state.seconds[1] = 1.0
    assert not other.state.seconds
    other.restore({})
    assert other.state == Served()


def test_who_remembers_nothing_saves_nothing():
    part = Stateful()
    assert part.snapshot() == {}
    part.restore({})


def test_an_older_state_is_migrated():
    policy = Newer()
    policy.restore({"version": 2, "fields": {"served": {5: 1.0}}})
    assert (policy.state.seconds, policy.total) == ({5: 1.0}, 1.0)


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_are_refused_and_both_are_named(version):
    with pytest.raises(StateError, match=rf"policy 'fair': .* version {version}, .* reads 3"):
        Newer().restore({"version": version, "fields": {"seconds": {}}})


def test_what_was_saved_before_states_had_versions_is_version_0():
    with pytest.raises(StateError, match="version 0, this one reads 1"):
        Fair().restore({"seconds": [[3, 2.5]]})


def test_a_damaged_state_is_refused():
    with pytest.raises(StateError, match=r"policy 'fair': .* cannot be read: .*\$\.seconds"):
        Fair().restore({"version": 1, "fields": {"seconds": [1]}})
