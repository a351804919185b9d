"""People: who they are, what each of them may submit, and their sessions.

Tokens and sessions are worth something only while the person is enabled: every request asks. Of the
tokens of sessions only the digests are kept.
"""

import re
import secrets
import time
from collections.abc import Callable
from threading import Lock

import msgspec
import sqlalchemy as sa

from rota.core.errors import ConflictError, InputError, NotFoundError
from rota.core.proof import token_digest, token_label
from rota.daemon import tables
from rota.daemon.store import Store
from rota.wire import PEOPLE, TOKEN_NAME, Actor, MadeSession, NewPerson, Person, PersonChange
from rota.wire import SessionInfo as Session

OWN = re.compile(r"local(-[0-9a-f]+)?")
"""Names of the daemons themselves: their folders hold such tokens."""
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Person).decode
_PREFIX = "rota_"
MOST_SESSIONS = 100  # of one person: the oldest go


def lesser(role: str, other: str) -> str:
    """The role of both that allows less."""
    return min(role, other, key=PEOPLE.index)


def session_id(digest: str) -> str:
    """Names a session to people; it is no secret."""
    return token_label(digest)[:12]


class People:
    """Everybody who was added. `clock`: Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self.reserved: frozenset[str] = frozenset()  # names of whoever runs the daemon
        self._lock = Lock()
        with store.reading() as connection:
            bodies = connection.execute(sa.select(tables.people.c.body)).scalars()
            self._people = {person.name: person for person in map(_DECODE, bodies)}
            self._sessions = {
                str(digest): self._session(str(digest), str(name), began, until)
                for digest, name, began, until in connection.execute(
                    sa.select(tables.sessions).order_by(tables.sessions.c.began_unix)
                )
            }

    # --- who they are -----------------------------------------------------------------------------

    def all(self) -> list[Person]:
        """By name."""
        return [self._people[name] for name in sorted(self._people)]

    def find(self, name: str) -> Person | None:
        """The person of this name, if there is one."""
        return self._people.get(name)

    def known(self, name: str) -> Person:
        """The person of this name."""
        found = self._people.get(name)
        if found is None:
            raise NotFoundError(f"there is no person {name!r}: see `rota user ls`")
        return found

    def of_subject(self, subject: str) -> Person | None:
        """Who it is that the identity provider means; nobody has an empty subject."""
        people = self._people.values()
        return next((each for each in people if subject and each.subject == subject), None)

    def actor(self, name: str, role: str = "") -> Actor | None:
        """What somebody is who shows something of a person; None: nothing at present.

        `role`: what was shown allows no more than this.
        """
        found = self._people.get(name)
        if found is None or found.disabled:
            return None
        return Actor(name, lesser(role, found.role) if role else found.role, found.after_job)

    def add(self, new: NewPerson, *, after_job: int) -> Person:
        """Somebody of whom nothing was known; jobs up to `after_job` are not theirs."""
        if not TOKEN_NAME.fullmatch(new.name):
            raise InputError(
                f"name {new.name!r}: use up to 64 letters, digits, '.', '_', '@' and '-'"
            )
        if OWN.fullmatch(new.name) or new.name in self.reserved:
            raise InputError(f"name {new.name!r}: it is the daemon's own: use another")
        _check_role(new.role)
        with self._lock:
            if new.name in self._people:
                raise ConflictError(
                    f"{new.name!r} is there already: `rota user change {new.name}` changes them"
                )
            person = Person(**msgspec.structs.asdict(new), after_job=after_job)
            self._save(person, tables.people.insert())
        return person

    def change(self, name: str, change: PersonChange) -> Person:
        """Let some things be different from now on, for tokens and sessions that there are, too."""
        wanted = {
            key: value
            for key, value in msgspec.structs.asdict(change).items()
            if value is not msgspec.UNSET
        }
        if "role" in wanted:
            _check_role(wanted["role"])
        return self._change(name, **wanted)

    def allow(self, name: str, *, allowed: bool) -> Person:
        """Let them in, or not; their sessions are over if not."""
        person = self._change(name, disabled=not allowed)
        if not allowed:
            self.end_all(name)
        return person

    def _change(self, name: str, **wanted: object) -> Person:
        with self._lock:
            before = self.known(name)
            person = msgspec.structs.replace(before, **wanted)
            if person != before:
                self._save(person, sa.update(tables.people).where(tables.people.c.name == name))
        return person

    def _save(self, person: Person, statement: sa.Insert | sa.Update) -> None:
        other = self.of_subject(person.subject) if person.subject else None
        if other is not None and other.name != person.name:
            raise ConflictError(f"subject {person.subject!r} is {other.name!r}: give another")
        with self._store.writing() as connection:
            connection.execute(
                statement.values(
                    name=person.name, subject=person.subject or None, body=_ENCODE(person)
                )
            )
        self._people[person.name] = person

    # --- sessions ---------------------------------------------------------------------------------

    def begin(self, name: str, seconds: float) -> MadeSession:
        """A session of somebody who has shown who they are; its token can be read only now."""
        actor = self.actor(name)
        if actor is None:
            raise NotFoundError(f"{name!r} cannot log in")
        token = _PREFIX + secrets.token_urlsafe(32)
        digest, now = token_digest(token), self._clock()
        made = self._session(digest, name, now, now + seconds)
        table = tables.sessions
        with self._lock:
            with self._store.writing() as connection:
                connection.execute(sa.delete(table).where(table.c.until_unix <= now))
                connection.execute(
                    table.insert().values(
                        digest=digest, person=name, began_unix=now, until_unix=made.until
                    )
                )
                theirs = [d for d, each in self._sessions.items() if each.user == name]
                surplus = theirs[: max(0, len(theirs) + 1 - MOST_SESSIONS)]
                connection.execute(sa.delete(table).where(table.c.digest.in_(surplus)))
            self._sessions = {
                d: s for d, s in self._sessions.items() if s.until > now and d not in surplus
            }
            self._sessions[digest] = made
        return MadeSession(made.id, name, actor.role, token, made.until)

    def recognise(self, digest: str) -> Actor | None:
        """Whose session has a token with this digest?"""
        found = self._sessions.get(digest)
        if found is None or found.until <= self._clock():
            return None
        return self.actor(found.user)

    def digests(self) -> list[str]:
        """Of the tokens of all sessions."""
        return list(self._sessions)

    def sessions(self) -> list[Session]:
        """Those that are not over, oldest first."""
        now = self._clock()
        found = []
        for each in list(self._sessions.values()):
            actor = self.actor(each.user)
            if actor is not None and each.until > now:
                found.append(msgspec.structs.replace(each, role=actor.role))
        return sorted(found, key=lambda each: each.began_at)

    def end(self, session: str) -> bool:
        """End one, by id; False if there is none."""
        return self._end(lambda found: found.id == session)

    def end_all(self, name: str) -> None:
        """End those of somebody."""
        self._end(lambda found: found.user == name)

    def _end(self, chosen: Callable[[Session], bool]) -> bool:
        with self._lock:
            gone = [digest for digest, each in self._sessions.items() if chosen(each)]
            table = tables.sessions
            if gone:
                with self._store.writing() as connection:
                    connection.execute(sa.delete(table).where(table.c.digest.in_(gone)))
            self._sessions = {d: s for d, s in self._sessions.items() if d not in gone}
        return bool(gone)

    @staticmethod
    def _session(digest: str, name: str, began: float, until: float) -> Session:
        return Session(
            id=session_id(digest), user=name, role="", via="oidc", began_at=began, until=until
        )


def _check_role(role: str) -> None:
    if role not in PEOPLE:
        raise InputError(f"role {role!r}: people have one of {', '.join(PEOPLE)}")
