"""Plans for all who wait, made anew beside those who run: hundreds of them at one decision.

Those who wait are planned in the order in which they were to start, so that most start later than
all before them. After the last start that is planned so far, only ends follow: what is free only
grows. There a request needs no look at the whole time that it takes, and those ends wait in a heap
until a start is planned behind them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from rota.core.events import INF
from rota.policies.backfill.profile import EPSILON, Found, Profile

Front = tuple[list[float], list[float]]
"""How early jobs of so many seconds could begin at best: seconds and starts, both increasing."""


def plan_ahead(  # noqa: C901, PLR0912, PLR0915 - written out: a call for each step costs more
    now_s: float,
    gpus: float,
    uses: Iterable[tuple[float, float]],
    wants: Iterable[tuple[float, float]],
) -> tuple[Profile, list[float]]:
    """Take for one after the other (GPUs, seconds) as early as possible; what is free, the starts.

    `uses`: when those who run end, and their GPUs.
    """
    later = []  # ends after the last start: times and GPUs
    level = gpus
    for end_s, used in uses:
        if end_s > now_s:
            level -= used
            if end_s < INF:
                later.append((end_s, used))
    heapify(later)
    times, free = [now_s], [level]
    known: Found = {}
    asked: dict[float, tuple[list[float], list[float], list[Front]]] = {}
    """By GPUs: what was found for as many, and for fewer."""
    begins: list[float] = []
    for amount, seconds in wants:
        if amount not in asked:
            longs, starts = front = known[amount] = ([], [])
            asked[amount] = (longs, starts, [known[one] for one in known if one < amount])
            for one, (_, _, less) in asked.items():
                if one > amount:
                    less.append(front)
        longs, starts, less = asked[amount]
        place = bisect_right(longs, seconds)
        # not before those that asked for no more: what is free only shrinks
        bound_s = starts[place - 1] if place else -INF
        if place and longs[place - 1] == seconds:
            place -= 1
        for others, found in less:
            i = bisect_right(others, seconds)
            if i and found[i - 1] > bound_s:
                bound_s = found[i - 1]
        if bound_s == INF:
            begins.append(INF)
            continue
        need = amount - EPSILON
        at, count = bisect_left(times, bound_s), len(times)
        while True:  # the first window of so many seconds in which enough are free
            while at < count and free[at] < need:
                at += 1
            if at == count:
                break
            end_s = times[at] + seconds
            last = bisect_left(times, end_s, at + 1)
            if last == at + 1 or min(free[at:last]) >= need:
                break
            at = last - 1
            while free[at] >= need:
                at -= 1
            at += 1
        if at == count:  # behind all that is planned
            level = free[-1]
            while later and level < need:
                time_s = later[0][0]
                while later and later[0][0] == time_s:
                    level += heappop(later)[1]
                times.append(time_s)
                free.append(level)
            start_s = times[-1] if level >= need else INF
            begins.append(start_s)
            if start_s > bound_s:
                longs[place:], starts[place:] = [seconds], [start_s]  # nobody starts later
            end_s = start_s + seconds
            if start_s < end_s:
                free[-1] = level - amount
                if end_s < INF:
                    heappush(later, (end_s, amount))
            continue
        start_s = times[at]
        begins.append(start_s)
        if start_s > bound_s:
            behind = bisect_right(starts, start_s, lo=place)  # they ask for more, start no later
            longs[place:behind], starts[place:behind] = [seconds], [start_s]
        if start_s < end_s:
            if last == count:
                if end_s < INF:
                    heappush(later, (end_s, amount))
            elif times[last] != end_s:
                times.insert(last, end_s)
                free.insert(last, free[last - 1])
            if last == at + 1:
                free[at] -= amount
            else:
                free[at:last] = [level - amount for level in free[at:last]]
    level = free[-1]
    for end_s, used in sorted(later):
        level += used
        if end_s == times[-1]:
            free[-1] = level
        else:
            times.append(end_s)
            free.append(level)
    return Profile.of(times, free, known), begins
