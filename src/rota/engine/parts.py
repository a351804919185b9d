"""From texts to the parts of a run: policies (also in files of users), placements, costs, ..."""

import csv
import importlib.util
import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from rota.core.admission import Admission
from rota.core.errors import OptionError
from rota.core.policy import DecidePolicy, Params, Policy, PriorityPolicy, RoundPolicy
from rota.core.ports import Costs
from rota.core.registry import (
    ADMISSIONS,
    PLACEMENTS,
    POLICIES,
    check_file,
    load,
    names,
    parse_params,
    split,
    unknown,
)
from rota.core.topology import Topology
from rota.models import costs
from rota.placement.base import Placement, Verified

PYTHON = ".py"
YAML = (".yaml", ".yml")


# --- policies ------------------------------------------------------------------------------------


def policy_class(name: str) -> type[Policy[Any]]:
    """A registered policy, or the one in a Python file."""
    if name.endswith(PYTHON):
        check_file(name)
        return _policy_in(Path(name))
    found: type[Policy[Any]] = _load(POLICIES, "policy", name)
    return found


def make_policy(text: str) -> Policy[Any]:
    """The policy of `name:key=value,...` or `file.py:key=value,...`."""
    name, options = split(text)
    kind = policy_class(name)
    return kind(make_params(f"policy {name!r}", kind.Parameters, options))


def _policy_in(path: Path) -> type[Policy[Any]]:
    """The single policy that a file defines."""
    kind: type[Policy[Any]] = _single(
        path, "policy", "policies", (PriorityPolicy, DecidePolicy, RoundPolicy), "rota.core.policy"
    )
    if _says_nothing(kind):
        method = (
            "key(self, job, now_s)" if issubclass(kind, PriorityPolicy) else "decide(self, view)"
        )
        raise OptionError(f"{path}: {kind.__name__} does not say how it decides: define {method}")
    return kind


def _says_nothing(kind: type[Policy[Any]]) -> bool:
    if issubclass(kind, PriorityPolicy):
        return kind.key is PriorityPolicy.key
    return issubclass(kind, DecidePolicy) and kind.decide is DecidePolicy.decide


# --- in files of users ---------------------------------------------------------------------------


def _single(path: Path, what: str, several: str, bases: tuple[type, ...], home: str) -> Any:
    """The one class of a kind that a file defines; it is named after the file unless it says so."""
    module = _run_file(path, what)
    found = [
        kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, bases)
        and kind.__module__ == module.__name__
        and not name.startswith("_")
    ]
    leaves = [kind for kind in found if not any(kind in other.__mro__[1:] for other in found)]
    if not leaves:
        derived = " or ".join(base.__name__ for base in bases)
        raise OptionError(
            f"{path}: defines no {what}: write a class derived from {derived} ({home})"
        )
    if len(leaves) > 1:
        names = ", ".join(kind.__name__ for kind in leaves)
        raise OptionError(
            f"{path}: defines several {several} ({names}): keep one per file, "
            f"or begin the names of the others with an underscore"
        )
    kind: Any = leaves[0]
    if not kind.name:
        kind.name = path.stem
    return kind


def _run_file(path: Path, what: str) -> ModuleType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise OptionError(
            f"{what} file {str(path)!r} cannot be read ({error.strerror}): check the path"
        ) from error
    name = f"rota_{what}_{path.stem}_{sha256(source).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # pragma: no cover - the name ends with .py
        raise OptionError(f"{what} file {str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    try:
        with _nothing_written():
            spec.loader.exec_module(module)
    except SyntaxError as error:
        raise OptionError(f"{path}: line {error.lineno}: {error.msg}: correct the file") from error
    except (Exception, SystemExit) as error:  # else it would end Rota, as if all were well
        raise OptionError(
            f"{path}: importing it fails with {type(error).__name__}: {error}: correct the file"
        ) from error
    return module


@contextmanager
def _nothing_written() -> Iterator[None]:
    """Leave no `__pycache__` beside the user's files."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


# --- parameters ----------------------------------------------------------------------------------


def make_params(owner: str, kind: type[Params], options: Mapping[str, str]) -> Params:
    """Typed parameters; where numbers a/b/c are wanted, a CSV file with one column will do too.

    Files that the parameters name (`Params.files`) are read here.
    """
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key in kind.files:
            _merge(values, _from_file(owner, key, kind, value))
    for key, value in options.items():
        if key not in kind.files:
            wanted = _wants_numbers(hints.get(key))
            values[key] = _numbers(owner, key, value) if wanted else value
    params: Params = parse_params(owner, kind, values)
    return params


def _from_file(owner: str, key: str, kind: type[Params], name: str) -> Mapping[str, Any]:
    where = f"{owner}: {key}={name}"
    check_file(name)
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise OptionError(f"{where} cannot be read ({error.strerror}): check the path") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{where} is no text ({error}): give the file itself") from error
    try:
        values = kind.files[key](text)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from error
    parse_params(where, kind, values)  # what is wrong is blamed on this file
    return values


def _merge(values: dict[str, Any], more: Mapping[str, Any]) -> None:
    """What several files say: lists are joined, of other values the last counts."""
    for key, value in more.items():
        old = values.get(key)
        values[key] = [*old, *value] if isinstance(old, list) and isinstance(value, list) else value


def _wants_numbers(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint) in ((float, ...), (int, ...))


def _numbers(owner: str, key: str, value: str) -> str | list[float]:
    """The text itself if it is a/b/c, else the numbers in the file that it names."""
    if all(_is_number(part) for part in value.split("/") if part):
        return value
    check_file(value)
    path = Path(value)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OptionError(
            f"{owner}: {key}={value} is neither numbers a/b/c nor a readable CSV file ({error})"
        ) from error
    if len(rows) < 2:  # noqa: PLR2004 - a header and a number
        raise OptionError(f"{owner}: {key}={value}: needs a header line and at least one number")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 1 or not _is_number(row[0]):
            raise OptionError(
                f"{owner}: {key}={value}: line {number}: {','.join(row)!r} is not one number: "
                f"give one column of numbers below a header"
            )
    return [float(row[0]) for row in rows[1:]]


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


# --- the others ----------------------------------------------------------------------------------


def _load(group: str, what: str, name: str) -> Any:
    known = names(group)
    if name not in known:
        raise OptionError(unknown(what, name, known))
    return load(group, name)


def placement_class(name: str) -> Any:
    """A registered placement (a class, or a function that chooses one), or that in a file."""
    if not name.endswith(PYTHON):
        return _load(PLACEMENTS, "placement", name)
    check_file(name)
    path = Path(name)
    kind = _single(path, "placement", "placements", (Placement,), "rota.placement.base")
    if inspect.isabstract(kind):
        raise OptionError(
            f"{path}: {kind.__name__} does not say where jobs go: define "
            f"choose(self, shape, room, job)"
        )
    return kind


def make_placement(text: str, topology: Topology, seed: int) -> Placement:
    """The placement of `name:key=value,...` or `file.py:key=value,...`."""
    name, options = split(text)
    factory = _verified(placement_class(name))
    kind: type[Params] = Params if inspect.isfunction(factory) else factory.Parameters
    params = make_params(f"placement {name!r}", kind, options)
    placement: Placement = factory(topology, params, seed=seed)
    return placement


def _verified(factory: Any) -> Any:
    """A placement that is not Rota's own, with what it takes looked at."""
    ours = not isinstance(factory, type) or factory.__module__.startswith("rota.")
    if ours or not issubclass(factory, Placement):
        return factory
    return type(factory.__name__, (Verified, factory), {"__doc__": factory.__doc__})


def admission_class(name: str) -> type[Admission]:
    """A registered admission, or the one in a Python file."""
    found: type[Admission]
    if not name.endswith(PYTHON):
        found = _load(ADMISSIONS, "admission", name)
        return found
    check_file(name)
    path = Path(name)
    found = _single(path, "admission", "admissions", (Admission,), "rota.core.admission")
    if found.consider is Admission.consider:
        raise OptionError(
            f"{path}: {found.__name__} does not say whom it lets in: define "
            f"consider(self, job, view)"
        )
    return found


def make_admission(text: str) -> Admission:
    """The admission of `name:key=value,...` or `file.py:key=value,...`."""
    name, options = split(text)
    kind = admission_class(name)
    return kind(make_params(f"admission {name!r}", kind.Parameters, options))


def make_costs(text: str) -> Costs:
    """The mechanism costs of `name:key=value,...`, or of a YAML file."""
    if not text.endswith(YAML):
        return costs.make_costs(text)
    check_file(text)
    try:
        content = Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cost file {text!r} cannot be read ({error}): check the path") from error
    try:
        return costs.load_costs(content)
    except OptionError as error:
        raise OptionError(f"{text}: {error}") from error
