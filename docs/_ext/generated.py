"""Text that is taken from the code when the pages are built, so that it cannot go stale.

A line `<!-- generated: NAME [ARGUMENT] -->` in a page is replaced by what the function of that name
returns, as Markdown, before the page is parsed: headings and links in it are as good as any other.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from films import film, notebook
from http_api import http_api

from rota.cli.app import rota
from rota.cli.listing import facts, values
from rota.core import registry
from rota.core.policy import PriorityPolicy
from rota.metrics.vocabulary import MEASURES
from rota.traces.synth.generate import KINDS

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
MARKER = re.compile(r"^<!-- generated: ([\w-]+)(?: (.+?))? -->$", re.MULTILINE)
HIDDEN = ("help", "debug")  # options that every command has
PREFIX = "ROTA"


# --- what is registered --------------------------------------------------------------------------


def parts(argument: str) -> str:
    """A table of everything that is registered in a group (`brief`: without parameters)."""
    group, _, brief = argument.partition(" ")
    rows = []
    for name in registry.names(f"rota.{group}"):
        about = facts(f"rota.{group}", name)
        keys = ", ".join(f"`{item['name']}`" for item in about["parameters"])
        rows.append([f"`{name}`", about["summary"], keys or "none"][: 2 if brief else 3])
    return _table(["Name", "What it does", "Parameters"][: 2 if brief else 3], rows)


def measures(_: str) -> str:
    """A table of all measures that schedules are compared by."""
    better = {"less": "less", "more": "more", None: "neither"}
    rows = [[m.label, f"`{m.key}`", m.unit, better[m.better]] for m in MEASURES]
    return _table(["Name", "Key in files", "Unit", "Better"], rows)


def policies(_: str) -> str:
    """A table of all policies; a name leads to the policy's page."""
    rows = []
    for name in registry.names(registry.POLICIES):
        about = facts(registry.POLICIES, name)
        page = DOCS / "policies" / f"{name}.md"
        shown = f"[`{name}`]({name}.md)" if page.exists() else f"`{name}`"
        kind = registry.load(registry.POLICIES, name)
        rows.append(
            [shown, about["summary"], _short(about["paper"]), about["knowledge"], _preempts(kind)]
        )
    return _table(["Name", "What it does", "Paper", "Knows", "Preempts"], rows)


def formats(_: str) -> str:
    """A table of the trace formats."""
    rows = [
        [f"`{name}`", registry.load(registry.FORMATS, name).description]
        for name in registry.names(registry.FORMATS)
    ]
    return _table(["Format", "What it reads"], rows)


def kinds(_: str) -> str:
    """A table of the kinds of synthetic workloads."""
    rows = [
        [f"`{name}`", text, ", ".join(f"`{key}={value}`" for key, value in defaults.items())]
        for name, (text, defaults) in KINDS.items()
    ]
    return _table(["Kind", "What it is", "Sets"], rows)


def parameters(argument: str) -> str:
    """A section (of a level, by default 3) for every registered part that has parameters."""
    group, _, level = argument.partition(" ")
    lines = []
    for name in registry.names(f"rota.{group}"):
        about = facts(f"rota.{group}", name)
        if not about["parameters"]:
            continue
        kind = registry.load(f"rota.{group}", name).Parameters
        types = {
            field.encode_name: values(field.type, "`") for field in msgspec.structs.fields(kind)
        }
        rows = [
            [f"`{item['name']}`", types[item["name"]], _default(item["default"]), item["about"]]
            for item in about["parameters"]
        ]
        headings = ["Parameter", "Values", "Default", "Meaning"]
        if not any(row[-1] for row in rows):  # the sentence says it all
            headings, rows = headings[:-1], [row[:-1] for row in rows]
        lines += [f"{'#' * int(level or 3)} `{name}`", ""]
        lines += [_first_paragraph(about["about_parameters"]), ""]
        lines += [_table(headings, rows), ""]
    return "\n".join(lines)


def _default(text: str) -> str:
    return {"": "empty", "None": "not set", "True": "`yes`", "False": "`no`"}.get(text, f"`{text}`")


def sources(group: str) -> str:
    """Where the presets of a group come from."""
    rows = [
        [f"`{name}`", registry.load(f"rota.{group}", name).source]
        for name in registry.names(f"rota.{group}")
    ]
    return _table(["Name", "Source"], rows)


def quirks(name: str) -> str:
    """What a dialect keeps of its simulator, and where it departs."""
    dialect = registry.load(registry.DIALECTS, name)()
    return _table(["Quirk", "What it means"], [[key, text] for key, text in dialect.notes.items()])


def meanings(name: str) -> str:
    """Which policies a dialect knows, and their names in its simulator."""
    dialect = registry.load(registry.DIALECTS, name)
    return _table(
        ["`--policy`", "In the simulator"],
        [[f"`{ours}`", theirs] for ours, theirs in dialect.policies.items()],
    )


def _short(paper: str) -> str:
    """Authors and venue of a citation."""
    pieces = paper.split(", ")
    return f"{pieces[0]}, {pieces[-1]}" if len(pieces) > 1 else "none"


def _preempts(kind: Any) -> str:
    if issubclass(kind, PriorityPolicy):
        return "yes" if kind.preemptive else "no"
    for field in msgspec.structs.fields(kind.Parameters):
        if field.name in ("preempt", "preemptive"):
            return f"`{field.name}` (default: {'yes' if field.default else 'no'})"
    return "no"


def checks(path: str) -> str:
    """A table of the checks of the test kit: their names, and what must hold."""
    rows = [
        [f"`{check.__name__}`", " ".join((inspect.getdoc(check) or "").split())]
        for check in _load(path)
    ]
    return _table(["Check", "What must hold"], rows)


# --- what the source says ------------------------------------------------------------------------


def members(path: str) -> str:
    """A table of an enumeration: number, name, and the comment beside it in the source."""
    kind = _load(path)
    comments = dict(re.findall(r"^\s+(\w+) = \S+\s+# (.+)$", inspect.getsource(kind), re.MULTILINE))
    rows = [
        [str(int(member)), f"`{name.lower()}`", comments.get(name, "-")]
        for name, member in kind.__members__.items()
    ]
    return _table(["Number", "Name", "Meaning"], rows)


def docstring(path: str) -> str:
    """The docstring of a module, class or function, without its first line."""
    text = inspect.getdoc(_load(path)) or ""
    return text.partition("\n")[2].strip()


def tree(path: str) -> str:
    """The docstring of a module, without its first line, as it stands in the source."""
    return "\n".join(["```text", docstring(path), "```"])


def fields(path: str) -> str:
    """A table of the fields of a structure, with their defaults."""
    rows = []
    for field in msgspec.structs.fields(_load(path)):
        default = "required" if field.required else f"`{field.default!r}`"
        rows.append([f"`{field.name}`", f"`{_type_text(field.type)}`", default])
    return _table(["Field", "Type", "Default"], rows)


def settings(path: str) -> str:
    """A table of the keys of a structure: values, defaults, and the comments in the source."""
    kind = _load(path)
    comments = dict(re.findall(r"^ +(\w+): .+?  # (.+)$", inspect.getsource(kind), re.MULTILINE))
    rows = [
        [f"`{field.name}`", values(field.type, "`"), _setting(field), comments.get(field.name, "")]
        for field in msgspec.structs.fields(kind)
        if not isinstance(field.default, msgspec.Struct)  # it has a table of its own
    ]
    return _table(["Key", "Values", "Default", "Meaning"], rows)


def _setting(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in ("", None, ()):
        return "none"
    return _default(str(field.default))


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    return getattr(found, name) if name else found


# --- the command line ----------------------------------------------------------------------------


def cli(_: str) -> str:
    """A section for every command, with its options."""
    lines = []
    for path, command in _commands(rota, ("rota",)):
        lines += [f"{'#' * len(path)} `{' '.join(path)}`", ""]
        lines += [*_help(command), "", *_usage(path, command), ""]
        rows = [_option(path, item) for item in command.params if _is_shown(item)]
        if rows:
            lines += [_table(["Option", "Meaning", "Default", "Environment"], rows), ""]
    return "\n".join(lines)


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    ctx = click.Context(command, info_name=path[-1])
    if len(path) > 1:
        yield path, command
    for name in command.list_commands(ctx):
        child = command.get_command(ctx, name)
        if child is not None:
            yield from _commands(child, (*path, name))


def _help(command: click.Command) -> list[str]:
    """The help text; what click must not wrap becomes a block of code."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            body = paragraph.lstrip("\b\n").split("\n")
            title, code = body[0], [line.removeprefix("  ") for line in body[1:]]
            lines += [title, "", "```sh", *code, "```", ""]
        else:
            lines += [paragraph.replace("\n", " "), ""]
    return lines


def _usage(path: tuple[str, ...], command: click.Command) -> list[str]:
    if isinstance(command, click.Group):
        return []
    ctx = click.Context(command, info_name=" ".join(path))
    return ["```text", command.get_usage(ctx).removeprefix("Usage: "), "```"]


def _is_shown(item: click.Parameter) -> bool:
    return isinstance(item, click.Option) and item.name not in HIDDEN and not item.hidden


def _option(path: tuple[str, ...], item: Any) -> list[str]:
    value = "" if item.is_flag else item.metavar or "|".join(getattr(item.type, "choices", ()))
    names = ", ".join(f"`{name}`" for name in [*item.opts[:-1], f"{item.opts[-1]} {value}".strip()])
    default = "required" if item.required else str(item.default) if item.show_default else ""
    variable = item.envvar or "_".join([PREFIX, *path[1:], item.name]).upper().replace("-", "_")
    return [names, item.help or "", default, f"`{variable}`"]


# --- shared --------------------------------------------------------------------------------------


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n", 1)[0].split())


def _type_text(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


MAKERS: dict[str, Callable[[str], str]] = {
    maker.__name__: maker
    for maker in (
        parts, policies, measures, formats, kinds, parameters, sources, quirks, meanings, checks,
        members, docstring, tree, fields, settings, cli, http_api,
        notebook, film,
    )
}  # fmt: skip


def fill(text: str) -> str:
    """A page with everything generated put in."""
    return MARKER.sub(lambda match: MAKERS[match[1]](match[2] or ""), text)


def _read(app: "Sphinx", name: str, source: list[str]) -> None:  # noqa: ARG001 - Sphinx' interface
    source[0] = fill(source[0])


def _keep_attributes(app: "Sphinx") -> None:
    """Let napoleon not take the words before a colon for the type of an attribute."""
    before: dict[str, list[str]] = {}

    def save(_: Any, what: str, name: str, __: Any, ___: Any, lines: list[str]) -> None:
        if what == "attribute":
            before[name] = list(lines)

    def put_back(_: Any, what: str, name: str, __: Any, ___: Any, lines: list[str]) -> None:
        if what == "attribute":
            lines[:] = before.get(name, lines)

    app.connect("autodoc-process-docstring", save, priority=100)
    app.connect("autodoc-process-docstring", put_back, priority=900)


def setup(app: "Sphinx") -> dict[str, Any]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", _read)
    _keep_attributes(app)
    return {"version": "1", "parallel_read_safe": True}
