"""Fair share: who used how much of late, and what factor that gives (both of Slurm's algorithms).

Usage is what jobs hold, weighted as the partition bills it, times how long they hold it. It decays
with a half-life; the decay is exact, not in steps. Users and accounts that the associations do not
name have one share, below the root.

*Fair tree* (default): at every level those with the larger ratio of share to usage come first, with
all that is below them; accounts with equal ratios are merged. The factor of a user is its rank from
the end, over the number of users; equal ratios get equal ranks. *Classic*: `2 ** (-usage / share)`,
where the usage of a user is mixed with that of the accounts above it (effective usage).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import log

import msgspec

from rota.core.events import INF
from rota.core.sums import ordered_sum
from rota.policies.slurm.params import Association

ROOT = "root"


class Usage(msgspec.Struct):
    """Usage as of a time, by account and by account and user; of users the factor, too."""

    as_of_s: float = 0.0
    accounts: dict[str, float] = {}
    users: dict[tuple[str, str], tuple[float, float]] = {}


class ShareMember:
    """An account, or a user in one."""

    __slots__ = ("below", "effective", "factor", "name", "parent", "shares", "usage")

    def __init__(self, name: str, parent: "ShareMember | None", shares: float | None) -> None:
        self.name = name
        self.parent = parent
        self.shares = shares
        self.usage = 0.0
        self.factor = 0.0
        self.effective = 0.0
        self.below: list[ShareMember] = []
        if parent is not None:
            parent.below.append(self)


class FairShare:
    """The tree of accounts and users with their usage."""

    def __init__(
        self,
        associations: Iterable[Association],
        *,
        half_life_s: float,
        fair_tree: bool,
        dampening: float,
    ) -> None:
        self._half_life_s = half_life_s
        self._fair_tree = fair_tree
        self._dampening = dampening
        self._root = ShareMember(ROOT, None, 1.0)
        self._accounts: dict[str, ShareMember] = {ROOT: self._root}
        self._users: dict[tuple[str, str], ShareMember] = {}
        self._as_of_s = 0.0
        self._build(list(associations))

    def _build(self, associations: Sequence[Association]) -> None:
        named = {one.account: one for one in associations if not one.user}

        def account(name: str, seen: tuple[str, ...] = ()) -> ShareMember:
            if name in self._accounts:
                return self._accounts[name]
            told = named.get(name)
            parent = told.parent if told is not None and told.parent not in (*seen, name) else ""
            above = account(parent, (*seen, name)) if parent else self._root
            made = self._accounts[name] = ShareMember(name, above, told.shares if told else 1.0)
            return made

        for one in associations:
            if not one.user:
                account(one.account)
        for one in associations:
            if one.user:
                place = account(one.account)
                self._users[one.account, one.user] = ShareMember(one.user, place, one.shares)

    def member(self, account: str, user: str) -> ShareMember:
        """The user in the account, made with one share if it is not configured."""
        found = self._users.get((account, user))
        if found is None:
            place = self._accounts.get(account)
            if place is None:
                place = self._accounts[account] = ShareMember(account, self._root, 1.0)
            found = self._users[account, user] = ShareMember(user, place, 1.0)
        return found

    def factor(self, account: str, user: str) -> float:
        """Of the user, as it was ranked last; a new one makes all ranks anew."""
        if (account, user) not in self._users:
            self.member(account, user)
            self.rank()
        return self._users[account, user].factor

    # --- usage ------------------------------------------------------------------------------------

    def decay(self, now_s: float) -> None:
        """Bring all usage up to a time; nothing may be charged before it any more."""
        passed_s, self._as_of_s = now_s - self._as_of_s, now_s
        if passed_s > 0 and self._half_life_s:
            kept = 0.5 ** (passed_s / self._half_life_s)
            for member in (*self._accounts.values(), *self._users.values()):
                member.usage *= kept

    def charge(self, member: ShareMember, rate: float, from_s: float, to_s: float) -> None:
        """So much per second between two times, both up to the time of `decay`, decayed to then."""
        if to_s <= from_s:
            return
        half_s = self._half_life_s
        if half_s:
            scale = half_s / log(2)
            early, late = ((self._as_of_s - t) / half_s for t in (from_s, to_s))
            amount = rate * scale * (0.5**late - 0.5**early)
        else:
            amount = rate * (to_s - from_s)
        at: ShareMember | None = member
        while at is not None:
            at.usage += amount
            at = at.parent

    # --- factors ----------------------------------------------------------------------------------

    def rank(self) -> None:
        """Give every user its factor."""
        if self._fair_tree:
            self._rank_tree()
        else:
            self._rank_classic()

    def _rank_tree(self) -> None:
        users = set(map(id, self._users.values()))
        total, seen = len(users), 0
        stack = [self._groups([self._root])]
        while stack:
            members = next(stack[-1], None)
            if members is None:
                stack.pop()
                continue
            mine = [member for member in members if id(member) in users]
            for member in mine:
                member.factor = (total - seen) / total
            seen += len(mine)
            accounts = [member for member in members if id(member) not in users]
            if accounts:
                stack.append(self._groups(accounts))

    @staticmethod
    def _groups(parents: Sequence[ShareMember]) -> Iterator[list[ShareMember]]:
        """Those below these, with equal ratios together, the largest ratio first."""
        ratios: dict[float, list[ShareMember]] = {}
        for parent in parents:
            shares = ordered_sum(member.shares or 0.0 for member in parent.below)
            usage = ordered_sum(member.usage for member in parent.below)
            for member in parent.below:
                if not member.usage:
                    ratio = INF if member.shares is None or member.shares else 0.0
                elif member.shares is None:
                    ratio = 1.0
                else:
                    ratio = (member.shares / shares if shares else 0.0) / (member.usage / usage)
                ratios.setdefault(ratio, []).append(member)
        return (ratios[ratio] for ratio in sorted(ratios, reverse=True))

    def _rank_classic(self) -> None:
        total = self._root.usage
        norm: dict[int, float] = {id(self._root): 1.0}
        self._root.effective = 1.0
        level = [self._root]
        while level:
            for parent in level:
                shares = ordered_sum(member.shares or 0.0 for member in parent.below)
                for member in parent.below:
                    own = member.usage / total if total else 0.0
                    if member.shares is None:
                        norm[id(member)] = norm[id(parent)]
                        member.effective = parent.effective
                        continue
                    part = member.shares / shares if shares else 0.0
                    norm[id(member)] = norm[id(parent)] * part
                    above = parent.effective if total else 0.0
                    member.effective = own + (above - own) * part
            level = [member for parent in level for member in parent.below]
        for member in self._users.values():
            share = norm[id(member)]
            exponent = member.effective / share / self._dampening if share else INF
            member.factor = 2.0**-exponent if exponent < INF else 0.0

    # --- state ------------------------------------------------------------------------------------

    def save(self) -> Usage:
        """All usage and factors."""
        return Usage(
            self._as_of_s,
            {name: one.usage for name, one in self._accounts.items()},
            {key: (one.usage, one.factor) for key, one in self._users.items()},
        )

    def load(self, saved: Usage) -> None:
        """Take them up again; what the associations do not know any more stays below the root."""
        self._as_of_s = saved.as_of_s
        for name, usage in saved.accounts.items():
            if name not in self._accounts:
                self._accounts[name] = ShareMember(name, self._root, 1.0)
            self._accounts[name].usage = usage
        for (account, user), (usage, factor) in saved.users.items():
            member = self.member(account, user)
            member.usage, member.factor = usage, factor
