"""A plugin of mypy: `sum` of floats is an error, as its last digit depends on the Python.

`rota.core.sums.ordered_sum` adds one after the other with every version. Whole numbers may be
added by `sum`, and arrays by their own method. Within `sum`, which has several signatures, mypy may
word the error as that of another one: `expected "Iterable[bool]"`.
"""

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, get_proper_type


def _is_float(found: Type) -> bool:
    kind = get_proper_type(found)
    if isinstance(kind, UnionType):
        return any(map(_is_float, kind.items))
    return isinstance(kind, Instance) and kind.type.fullname == "builtins.float"


def _refuse_floats(called: FunctionContext) -> Type:
    if _is_float(called.default_return_type):
        called.api.fail("sum of floats: use rota.core.sums.ordered_sum", called.context)
    return called.default_return_type


class SameSums(Plugin):
    """Looks at every call of `sum`."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """What looks at the result of this function."""
        return _refuse_floats if fullname == "builtins.sum" else None


def plugin(_version: str) -> type[Plugin]:
    """Called by mypy."""
    return SameSums
