"""`rota policy|placement|admission|costs|rates|dialect ls|show`: what is registered."""

import inspect
import re
import textwrap
from typing import Annotated, Any, Literal, get_args, get_origin

import click

from rota.cli.options import DEBUG, names_of
from rota.cli.show import FORMAT, emit, listing
from rota.core import registry

Facts = dict[str, Any]
TABLE = "table"


def facts(group: str, name: str) -> Facts:
    """Everything that a registered object says about itself; with options, also its models."""
    from rota.engine import parts

    text, (name, options) = name, registry.split(name)
    classes = {
        registry.POLICIES: parts.policy_class,
        registry.PLACEMENTS: parts.placement_class,
        registry.ADMISSIONS: parts.admission_class,
    }
    found: Any = classes[group](name) if group in classes else registry.load(group, name)
    about: Facts = {"name": name, "summary": _first_line(_own_doc(found))}
    if group == registry.POLICIES:
        about |= {"knowledge": found.knowledge.describe(), "paper": found.paper or "-"}
        about |= {"door": _door(found)}
        if found.coupled:
            about["coupled"] = found.coupled
        models = parts.make_policy(text).models() if options else {}
        if models:
            about["models"] = {what: str(model) for what, model in models.items()}
    if group == registry.DIALECTS:
        about |= {"summary": found.description, "source": found.source}
        about |= {"policies": dict(found.policies)}
    module = inspect.getmodule(found) or inspect.getmodule(type(found))
    text = inspect.getdoc(module) or "" if module else ""
    own = _own_doc(found)
    about["description"] = text if group != registry.RATES or own in text else f"{own}\n\n{text}"
    about["departures"] = [
        " ".join(part.split())
        for part in re.split(r"\n\n|\n(?=Depart)", text)
        if part.startswith("Depart")
    ]
    about["parameters"] = _parameters(found)
    about["about_parameters"] = _before_attributes(getattr(found, "Parameters", None))
    files = getattr(getattr(found, "Parameters", None), "files", {})
    if files:
        about["files"] = {
            key: _first_line(inspect.getdoc(read) or "") for key, read in files.items()
        }
    return about


def _own_doc(found: Any) -> str:
    """Of a class its own; functions that only choose between classes speak through their module."""
    module = inspect.getmodule(found) or inspect.getmodule(type(found))
    return (inspect.isclass(found) and inspect.getdoc(found)) or inspect.getdoc(module) or ""


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _door(found: Any) -> str:
    from rota.core.policy import PriorityPolicy

    if not issubclass(found, PriorityPolicy):
        return "decides the whole state"
    order = "strict order" if found.strict else "skips what does not fit"
    return f"{'preemptive' if found.preemptive else 'not preemptive'} priority, {order}"


def _parameters(found: Any) -> list[Facts]:
    import msgspec

    kind = getattr(found, "Parameters", None)
    if kind is None:
        return []
    told = {key: text for base in reversed(kind.__mro__) for key, text in _attributes(base).items()}
    return [
        {
            "name": field.encode_name,
            "type": values(field.type),
            "default": _default(field),
            "about": told.get(field.name, ""),
        }
        for field in msgspec.structs.fields(kind)
    ]


def _before_attributes(kind: type | None) -> str:
    """What the docstring of a class says of all of them."""
    text = inspect.getdoc(kind) or "" if kind is not None else ""
    return text.partition("\nAttributes:\n")[0].strip()


def _attributes(kind: type) -> dict[str, str]:
    """What the docstring of a class says of each attribute."""
    _, _, section = inspect.cleandoc(vars(kind).get("__doc__") or "").partition("\nAttributes:\n")
    own = textwrap.dedent(section.partition("\n\n")[0])
    parts = re.split(r"^(\w+): ", own, flags=re.MULTILINE)[1:]
    return {key: " ".join(text.split()) for key, text in zip(parts[::2], parts[1::2], strict=True)}


def values(hint: Any, quote: str = "") -> str:
    """What users may write for a value of this type."""
    import msgspec

    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return values(arguments[0], quote) + _bounds(arguments[1])
    if get_origin(hint) is Literal:
        return ", ".join(f"{quote}{value}{quote}" for value in arguments)
    if get_origin(hint) is tuple:
        each = values(arguments[0], quote)
        return f"{each}s" if each == TABLE else f"{each}s, {quote}a/b/c{quote}"
    if type(None) in arguments:
        known = [option for option in arguments if option is not type(None)]
        return " or ".join(values(option, quote) for option in known)
    yes_no = f"{quote}yes{quote}, {quote}no{quote}"
    words = {float: "number", int: "whole number", bool: yes_no, str: "text"}
    table = inspect.isclass(hint) and issubclass(hint, msgspec.Struct)
    return TABLE if table else words.get(hint, str(hint))


def _bounds(meta: Any) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = [(text, getattr(meta, key)) for key, text in words.items()]
    return "".join(f", {text} {bound}" for text, bound in bounds if bound is not None)


def _default(field: Any) -> str:
    import msgspec

    value = field.default
    if value is msgspec.NODEFAULT:
        if field.default_factory is msgspec.NODEFAULT:
            return "required"
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, tuple):
        return "/".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _print_facts(about: Facts) -> None:
    lines = [f"{about['name']}: {about['summary']}", ""]
    told = (key for key in ("paper", "knowledge", "door", "coupled", "source") if key in about)
    lines += [f"{key + ':':<12}{about[key]}" for key in told]
    if about.get("policies"):
        lines.append("policies:")
        lines += [f"    {ours:<14}{theirs}" for ours, theirs in about["policies"].items()]
    lines.append("parameters:" if about["parameters"] else "parameters: none")
    if about["parameters"]:
        lines += textwrap.wrap(
            about["about_parameters"], 96, initial_indent="    ", subsequent_indent="    "
        )
    for one in about["parameters"]:
        lines.append(f"    {one['name']} = {one['default']}  ({one['type']})")
        lines += textwrap.wrap(one["about"], 92, initial_indent=" " * 8, subsequent_indent=" " * 8)
    if "files" in about:
        lines.append("files:")
        lines += [f"    {key} = FILE  ({told})" for key, told in about["files"].items()]
    lines += ["", about["description"]]
    for what, model in about.get("models", {}).items():
        lines += ["", f"{what}:", textwrap.indent(model, "    ")]
    click.echo("\n".join(lines).rstrip())


def _rows(group: str) -> list[Facts]:
    rows = []
    for name in registry.names(group):
        try:
            about = facts(group, name)
        except Exception as error:  # noqa: BLE001 - a broken wheel must not hide the others
            click.echo(f"warning: {name}: cannot be loaded: {error}", err=True)
            continue
        row = {"name": name}
        if "knowledge" in about:
            row["knows"] = about["knowledge"]
        if about["parameters"]:
            row["parameters"] = ", ".join(p["name"] for p in about["parameters"])
        else:
            row["parameters"] = "-"
        rows.append(row | {"what": about["summary"]})
    return rows


def _group(what: str, group: str, example: str) -> click.Group:
    """The commands `ls` and `show` for one kind of parts."""

    @click.group(what)
    def parts() -> None:
        pass

    @parts.command()
    @FORMAT
    @DEBUG
    def ls(output: str) -> None:
        listing(_rows(group), output)

    @parts.command()
    @click.argument("name", shell_complete=names_of(group))
    @FORMAT
    @DEBUG
    def show(name: str, output: str) -> None:
        about = facts(group, name)
        if output == "table":
            _print_facts(about)
        else:
            emit(about, output)

    parts.help = f"List what --{what if what != 'dialect' else 'like'} knows, or explain one."
    ls.help = f"List all.\n\n\b\nExample:\n  rota {what} ls -o json"
    show.help = f"Explain one.\n\n\b\nExample:\n  rota {what} show {example}"
    return parts


policy = _group("policy", registry.POLICIES, "tiresias")
placement = _group("placement", registry.PLACEMENTS, "consolidate")
admission = _group("admission", registry.ADMISSIONS, "quota")
costs = _group("costs", registry.COSTS, "pollux30")
rates = _group("rates", registry.RATES, "scaling")
dialect = _group("dialect", registry.DIALECTS, "tiresias")
