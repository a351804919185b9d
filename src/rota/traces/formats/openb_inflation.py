"""A list of pods shuffled and inflated to a load, exactly as in the published runs of FGD.

The published simulator draws with Go's generator: one number is lost, the pods (sorted by name) are
shuffled; then clones of pods drawn by position in the *sorted* list are appended until the next one
would exceed the load, or pods are removed at random positions until the load is low enough. Before
the nodes are ranked, ten more numbers are lost. A clone counts once its share of one GPU, however
many GPUs it asks for.

Go's generator (`math/rand`) is an additive lagged Fibonacci generator, x[n] = x[n - 607] + x[n -
273] modulo 2**64. A seed is mixed with a fixed table: the state of the same recurrence, seeded with
1, after 7.8e12 steps. The table is computed here by jumping ahead: x**n modulo the recurrence's
characteristic polynomial.
"""

from collections.abc import MutableSequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rota.core.errors import OptionError

_LENGTH = 607
_TAP = 273
_STEPS = 7_800_000_000_000
_MODULUS = (1 << 31) - 1
_DEFAULT_SEED = 89_482_311
_WORD = (1 << 64) - 1
_MOST = (1 << 63) - 1

Words = npt.NDArray[np.uint64]


class GoRandom:
    """Draws like `rand.New(rand.NewSource(seed))`."""

    def __init__(self, seed: int) -> None:
        seed %= _MODULUS
        mixed = _seeded(seed or _DEFAULT_SEED, 40, 20) ^ _table()
        self._state = [int(word) for word in mixed]
        self._tap = 0
        self._feed = _LENGTH - _TAP

    def word(self) -> int:
        """The next 63 bits."""
        self._tap = (self._tap - 1) % _LENGTH
        self._feed = (self._feed - 1) % _LENGTH
        total = (self._state[self._feed] + self._state[self._tap]) & _WORD
        self._state[self._feed] = total
        return total & _MOST

    def below(self, bound: int) -> int:
        """A whole number from 0 to bound - 1, as `Intn` for bounds below 2**31."""
        if bound & (bound - 1) == 0:
            return (self.word() >> 32) & (bound - 1)
        most = (1 << 31) - 1 - (1 << 31) % bound
        value = self.word() >> 32
        while value > most:
            value = self.word() >> 32
        return value % bound

    def permutation(self, count: int) -> list[int]:
        """The numbers 0 to count - 1 in random order, as `Perm`."""
        order = [0] * count
        for i in range(count):
            j = self.below(i + 1)
            order[i] = order[j]
            order[j] = i
        return order

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Reorder in place, as `Shuffle`."""
        for i in range(len(items) - 1, 0, -1):
            j = self._quick_below(i + 1)
            items[i], items[j] = items[j], items[i]

    def _quick_below(self, bound: int) -> int:
        """As `int31n`: a multiplication instead of a division, so other numbers than `below`."""
        product = (self.word() >> 31 & 0xFFFFFFFF) * bound
        low = product & 0xFFFFFFFF
        if low < bound:
            least = (1 << 32) % bound
            while low < least:
                product = (self.word() >> 31 & 0xFFFFFFFF) * bound
                low = product & 0xFFFFFFFF
        return product >> 32


def _seeded(seed: int, first: int, second: int) -> Words:
    """A state filled by a small multiplicative generator."""
    value = seed
    out = []
    for i in range(-20, _LENGTH):
        value = value * 48_271 % _MODULUS
        if i >= 0:
            word = value << first
            value = value * 48_271 % _MODULUS
            word ^= value << second
            value = value * 48_271 % _MODULUS
            out.append((word ^ value) & _WORD)
    return np.array(out, dtype=np.uint64)


@cache
def _table() -> Words:
    """The state of the generator seeded with 1 after all the steps.

    Written as a sequence, the state holds s[0..606] with s[n] = s[n - 607] + s[n - 273]. The state
    array is used backwards from its feed, which turns the sequence around.
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is what is wanted
        return _jumped()


def _jumped() -> Words:
    start = _seeded(1, 20, 10)
    sequence = _as_sequence(start)
    jump = _power(_STEPS - _STEPS % _LENGTH)
    rest = _STEPS % _LENGTH
    # All words of the state after the jump: the first is a combination of the sequence, and so on.
    longer = np.concatenate([sequence, np.zeros(_LENGTH, dtype=np.uint64)])
    for n in range(_LENGTH, 2 * _LENGTH):
        longer[n] = longer[n - _LENGTH] + longer[n - _TAP]
    moved = np.array(
        [np.sum(jump * longer[k : k + _LENGTH], dtype=np.uint64) for k in range(_LENGTH)],
        dtype=np.uint64,
    )
    state = _as_sequence(moved)  # the turn is its own inverse, as the jump was by whole rounds
    feed, tap = _LENGTH - _TAP, 0
    for _ in range(rest):
        tap = (tap - 1) % _LENGTH
        feed = (feed - 1) % _LENGTH
        state[feed] += state[tap]
    return state


def _as_sequence(state: Words) -> Words:
    """State in the order in which its words are overwritten, oldest first; its own inverse."""
    feed = _LENGTH - _TAP
    return np.array([state[(feed - 1 - k) % _LENGTH] for k in range(_LENGTH)], dtype=np.uint64)


def _power(exponent: int) -> Words:
    """x**exponent modulo x**607 - x**334 - 1, with coefficients modulo 2**64."""
    out = np.zeros(_LENGTH, dtype=np.uint64)
    out[0] = 1
    for bit in f"{exponent:b}":
        out = _reduced(_product(out, out))
        if bit == "1":
            out = _reduced(np.concatenate([np.zeros(1, dtype=np.uint64), out]))
    return out


def _product(left: Words, right: Words) -> Words:
    out = np.zeros(len(left) + len(right) - 1, dtype=np.uint64)
    for power, factor in enumerate(left):
        if factor:
            out[power : power + len(right)] += factor * right
    return out


def _reduced(polynomial: Words) -> Words:
    out = polynomial.copy()
    for power in range(len(out) - 1, _LENGTH - 1, -1):
        out[power - _LENGTH] += out[power]
        out[power - _TAP] += out[power]
        out[power] = 0
    return out[:_LENGTH]


# --- pods and nodes ------------------------------------------------------------------------------

_LOST_BEFORE_NODES = 10
MOST_CLONES = 1_000_000


class Inflation(msgspec.Struct, frozen=True):
    """Pods sorted by name: what each asks for per GPU (thousandths) and how many GPUs."""

    names: list[str]
    gpu_milli: list[int]
    num_gpu: list[int]


def inflate(pods: Inflation, target_milli: float, seed: int) -> tuple[list[str], GoRandom]:
    """The names in their order of arrival, clones as NAME-tuned-N; and the generator after it."""
    random = GoRandom(seed)
    random.word()
    order = list(range(len(pods.names)))
    random.shuffle(order)
    total = sum(milli * many for milli, many in zip(pods.gpu_milli, pods.num_gpu, strict=True))
    if total > target_milli:
        while order and total > target_milli:
            gone = order.pop(random.below(len(order)))
            total -= pods.gpu_milli[gone] * pods.num_gpu[gone]
        return [pods.names[pod] for pod in order], random
    names = [pods.names[pod] for pod in order]
    if any(pods.gpu_milli):
        _clone(pods, names, target_milli - total, random)
    return names, random


def _clone(pods: Inflation, names: list[str], room_milli: float, random: GoRandom) -> None:
    count = 0
    while True:
        pod = random.below(len(pods.names))
        if count >= MOST_CLONES:
            raise OptionError(
                f"format openb: the load needs more than {MOST_CLONES:,} clones of pods: "
                f"give a smaller ratio, fewer GPUs, or pods that ask for more"
            )
        if pods.gpu_milli[pod] > room_milli:
            return
        room_milli -= pods.gpu_milli[pod] * pods.num_gpu[pod]
        names.append(f"{pods.names[pod]}-tuned-{count}")
        count += 1


def node_order(names: list[str], random: GoRandom) -> list[str]:
    """The names of the nodes by rank (the first wins ties), after `inflate` has drawn."""
    for _ in range(_LOST_BEFORE_NODES):
        random.word()
    ranks = random.permutation(len(names))
    return [name for _, name in sorted(zip(ranks, sorted(names), strict=True))]
