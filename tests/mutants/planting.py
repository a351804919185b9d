"""Planting a bug: one snippet in the source of a function is replaced while a test runs."""

import inspect
import textwrap
from importlib import import_module


def plant(monkeypatch, target, old, new):
    """`target` is `module:Class.method` or `module:function`; `old` must occur once in it."""
    module_name, path = target.split(":")
    module = import_module(module_name)
    *owners, name = path.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part)
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{target} has changed: plant this bug anew ({old!r})"
    space = dict(vars(import_module(function.__module__)))
    exec(compile(source.replace(old, new), f"<mutant of {target}>", "exec"), space)  # noqa: S102
    mutant = space[name].__code__
    if mutant.co_freevars == function.__code__.co_freevars:
        # in the function itself, so that those who imported its name get it, too
        monkeypatch.setattr(getattr(function, "__func__", function), "__code__", mutant)
    else:
        monkeypatch.setattr(owner, name, space[name])
