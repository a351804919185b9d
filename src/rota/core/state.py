"""Private state of policies, admissions and placements: typed, versioned, saved as plain data.

A part that remembers something declares a `State` and keeps an instance in `self.state`:

    class MyState(State):
        served: dict[int, float] = {}  # job index -> seconds

    class MyPolicy(PriorityPolicy[Params]):
        def __init__(self, params: Params | None = None) -> None:
            super().__init__(params)
            self.state: MyState = MyState()

Saving and restoring follow from the types of the fields. When the fields change, raise `version`
and write `migrate`, or leave `migrate` out: then an older snapshot is refused with both versions in
the message. What is not plain data overrides `snapshot` and `restore` instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from rota.core.errors import StateError


class State(msgspec.Struct):
    """Base of a part's private state. All fields have defaults: a new part has seen nothing."""

    version: ClassVar[int] = 1
    """Raise it when the fields change."""

    @classmethod
    def migrate(cls, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG003 - part of the interface
        """Fields as this version has them, from those of an older one; None refuses it.

        Version 0 is what was saved before states had versions.
        """
        return None

    def save(self) -> Mapping[str, Any]:
        """As plain data, with the version."""
        if not self.__struct_fields__:
            return {}
        return {"version": self.version, "fields": msgspec.to_builtins(self)}

    @classmethod
    def load(cls, saved: Mapping[str, Any], owner: str) -> Self:
        """The state that `save` gave; `owner` is named in messages."""
        if not saved or not cls.__struct_fields__:
            return cls()
        version: int = saved.get("version", 0)
        fields: Mapping[str, Any] | None = saved.get("fields", saved)
        if version != cls.version:
            fields = cls.migrate(version, fields or {}) if version < cls.version else None
        if fields is None:
            raise StateError(
                f"{owner}: its saved state is of version {version}, this one reads {cls.version}"
            )
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise StateError(
                f"{owner}: its saved state (version {version}) cannot be read: {error}"
            ) from error


def from_rows(rows: Iterable[Sequence[Any]]) -> dict[Any, Any]:
    """A mapping as version 0 of many states saved it: rows of a key and its values."""
    return {key: rest[0] if len(rest) == 1 else rest for key, *rest in rows}


class Stateful:
    """A part whose private state can be saved and taken up again."""

    name: ClassVar[str] = ""
    role: ClassVar[str] = "part"
    """What it is, for messages: policy, admission, placement."""
    state: State = State()

    def snapshot(self) -> Mapping[str, Any]:
        """Private state as plain data."""
        return self.state.save()

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.state = type(self.state).load(saved, f"{self.role} {self.name!r}")
        self.resumed()

    def resumed(self) -> None:
        """The state was restored: derive from it what is kept beside it."""
