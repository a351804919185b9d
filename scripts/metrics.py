"""Measure the shape of the source code: run with `make metrics`.

The numbers are reports, never limits: a class is as long as its subject. With `--base REV` the same
numbers of another revision stand beside them.
"""

import argparse
import ast
import json
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from walk import TREE, modules, walk

# What the author of a policy has to read beside the core (some had other names in the past).
READ_WITH_POLICIES = ("policies", "solvers", "models", "rates", "placement")
LONGEST = 10
Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Piece:
    """A module, class or function and its number of lines."""

    name: str
    lines: int


@dataclass(frozen=True)
class Sizes:
    """How long the pieces of one kind are."""

    count: int
    median: int
    p90: int
    largest: list[Piece]

    @staticmethod
    def of(pieces: Iterable[Piece]) -> "Sizes":
        """Sum up the pieces."""
        ordered = sorted(pieces, key=lambda piece: (-piece.lines, piece.name))
        lines = sorted(piece.lines for piece in ordered)
        return Sizes(
            count=len(ordered),
            median=round(statistics.median(lines)),
            p90=lines[int(0.9 * (len(lines) - 1))],
            largest=ordered[:LONGEST],
        )


class Source:
    """The package `rota` of a source tree, parsed and never imported."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.texts: dict[str, str] = {}
        self.trees: dict[str, ast.Module] = {}
        for path in sorted((tree / "src" / "rota").rglob("*.py")):
            parts = path.relative_to(tree / "src").with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            self.texts[name] = path.read_text()
            self.trees[name] = ast.parse(self.texts[name])

    # --- Lines ------------------------------------------------------------------------------------

    def lines(self) -> dict[str, int]:
        """Lines of code, docstrings, comments and nothing."""
        counts = dict.fromkeys(("code", "docstring", "comment", "blank"), 0)
        for name, text in self.texts.items():
            documented = _docstring_lines(self.trees[name])
            for number, line in enumerate(text.splitlines(), start=1):
                counts[_kind(line.strip(), documented=number in documented)] += 1
        return counts

    def modules(self) -> Iterator[Piece]:
        """Yield every module."""
        for name, text in self.texts.items():
            yield Piece(name, len(text.splitlines()))

    def pieces(self, *kinds: type[ast.AST]) -> Iterator[Piece]:
        """Yield every class, or every function."""
        for module, tree in self.trees.items():
            for node, name in _defined(tree, ""):
                if isinstance(node, kinds):
                    assert isinstance(node, Defined)  # noqa: S101 - for the type checker
                    assert node.end_lineno is not None  # noqa: S101 - parsed from text
                    yield Piece(f"{module}:{name}", node.end_lineno - node.lineno + 1)

    def shared_names(self) -> dict[str, list[str]]:
        """Names of classes that stand for several, with the modules of these."""
        where: dict[str, list[str]] = defaultdict(list)
        for piece in self.pieces(ast.ClassDef):
            module, _, name = piece.name.partition(":")
            where[name.rpartition(".")[2]].append(module)
        return {name: where[name] for name in sorted(where) if len(where[name]) > 1}

    # --- Imports ----------------------------------------------------------------------------------

    @cached_property
    def imports(self) -> Graph:
        """What each module imports of the package, anywhere: lazily and for type checkers too."""
        return {
            name: {target for target in self._targets(tree) if target != name}
            for name, tree in self.trees.items()
        }

    def _targets(self, tree: ast.Module) -> Iterator[str]:
        for node in _statements_within(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.trees)
            elif isinstance(node, ast.ImportFrom) and node.module in self.trees:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield full if full in self.trees else node.module

    def cycles(self) -> list[list[str]]:
        """Groups of modules that import each other, directly or not."""
        groups = (sorted(group) for group in _components(self.imports) if len(group) > 1)
        return sorted(groups, key=len, reverse=True)

    def depth(self) -> int:
        """Modules on the longest chain of imports; a cycle counts as one."""
        depth: dict[str, int] = {}
        for group in _components(self.imports):  # what is imported comes first
            below = {target for name in group for target in self.imports[name]} - set(group)
            height = 1 + max((depth[name] for name in below), default=0)
            depth.update(dict.fromkeys(group, height))
        return max(depth.values())

    def imported_once(self) -> int:
        """Modules that only one other module imports."""
        users: dict[str, int] = defaultdict(int)
        for targets in self.imports.values():
            for target in targets:
                users[target] += 1
        return sum(count == 1 for count in users.values())

    # --- Policies ---------------------------------------------------------------------------------

    def reading(self) -> dict[str, Piece]:
        """How many modules and lines one reads to understand each policy."""
        project = tomllib.loads((self.tree / "pyproject.toml").read_text())["project"]
        entries = project["entry-points"]["rota.policies"]
        return {policy: self._closure(entry.partition(":")[0]) for policy, entry in entries.items()}

    def _closure(self, module: str) -> Piece:
        seen, todo = {module}, [module]
        while todo:
            for target in self.imports[todo.pop()] - seen:
                if target.split(".")[1] in READ_WITH_POLICIES:
                    seen.add(target)
                    todo.append(target)
        lines = sum(len(self.texts[name].splitlines()) for name in seen)
        return Piece(f"{len(seen)} modules", lines)


Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """What stands directly in it: definitions and imports are in no expression."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(node, field, None)
        if isinstance(found, list):
            yield from found


def _statements_within(node: ast.AST) -> Iterator[ast.AST]:
    for child in _statements(node):
        yield child
        yield from _statements_within(child)


def _defined(node: ast.AST, prefix: str) -> Iterator[tuple[ast.AST, str]]:
    for child in _statements(node):
        if isinstance(child, Defined):
            yield child, prefix + child.name
            yield from _defined(child, f"{prefix}{child.name}.")
        else:
            yield from _defined(child, prefix)


def _docstring_lines(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in (tree, *_statements_within(tree)):
        if isinstance(node, Defined | ast.Module) and ast.get_docstring(node, clean=False):
            text = node.body[0]
            found.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def _kind(line: str, *, documented: bool) -> str:
    if documented:
        return "docstring"
    if not line:
        return "blank"
    return "comment" if line.startswith("#") else "code"


def _components(graph: Graph) -> list[list[str]]:
    """Strongly connected components (Tarjan), each after those that it leads to."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


# --- The report ----------------------------------------------------------------------------------


def measure(tree: Path, *, walks: bool, of_old: bool = False) -> dict[str, Any]:
    """Every number of a source tree."""
    source = Source(tree)
    reading = source.reading()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        "lines": source.lines(),
        "modules": asdict(Sizes.of(source.modules())),
        "classes": asdict(Sizes.of(source.pieces(ast.ClassDef))),
        "functions": asdict(Sizes.of(source.pieces(*functions))),
        "imported_once": source.imported_once(),
        "import_cycles": source.cycles(),
        "import_depth": source.depth(),
        "shared_class_names": source.shared_names(),
        "reading": {policy: asdict(piece) for policy, piece in reading.items()},
        "reading_median": round(statistics.median(piece.lines for piece in reading.values())),
        "walks": _walks(tree, of_old=of_old) if walks else {},
    }


def _walks(tree: Path, *, of_old: bool) -> dict[str, dict[str, int]]:
    found = {}
    for name in ("simulate", "submit", "compare"):
        try:
            walked = walk(name, tree)
        except SystemExit as error:
            if not of_old:
                raise
            print(f"not known of that revision: {error}", file=sys.stderr)
            continue
        for process, calls in walked.items():
            counts = {"modules": len(modules(calls)), "functions": len(calls)}
            found[f"{name}, {process}"] = counts
    return found


def rows(found: dict[str, Any]) -> dict[str, str]:
    """The lines of the table."""
    lines = found["lines"]
    table = {
        "files": str(found["modules"]["count"]),
        "lines": str(sum(lines.values())),
        "code / docstring / comment / blank": " / ".join(str(lines[kind]) for kind in lines),
    }
    for kind in ("modules", "classes", "functions"):
        sizes = found[kind]
        longest = sizes["largest"][0]["lines"]
        table[f"lines of {kind}: median / p90 / max"] = (
            f"{sizes['median']} / {sizes['p90']} / {longest}"
        )
    cycles = found["import_cycles"]
    table |= {
        "modules that one other imports": str(found["imported_once"]),
        "import cycles (modules in them)": f"{len(cycles)} ({sum(map(len, cycles))})",
        "import depth": str(found["import_depth"]),
        "class names used twice or more": str(len(found["shared_class_names"])),
        "lines to read for a policy, median": str(found["reading_median"]),
    }
    for name, counts in found["walks"].items():
        table[f"walk {name}: modules / functions"] = f"{counts['modules']} / {counts['functions']}"
    return table


def details(found: dict[str, Any]) -> Iterator[str]:
    """Yield what the numbers are about, by name."""
    for kind in ("modules", "classes", "functions"):
        yield f"\nLongest {kind}:"
        yield from (f"  {piece['lines']:5} {piece['name']}" for piece in found[kind]["largest"])
    yield "\nImport cycles:"
    yield from (f"  {' '.join(cycle)}" for cycle in found["import_cycles"])
    yield "\nClass names used twice or more:"
    for name, where in found["shared_class_names"].items():
        yield f"  {name}: {' '.join(where)}"
    yield "\nLines to read for each policy:"
    for policy, piece in sorted(found["reading"].items(), key=lambda item: item[1]["lines"]):
        yield f"  {piece['lines']:5} {policy} ({piece['name']})"


def at_revision(revision: str, *, walks: bool) -> dict[str, Any]:
    """The numbers of another revision, checked out into a temporary folder.

    A walk that needs a package of that time, which is not installed now, is left out.
    """
    with tempfile.TemporaryDirectory(prefix="rota-metrics-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), revision)
        try:
            return measure(tree, walks=walks, of_old=True)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(TREE), *arguments], check=True)  # noqa: S603, S607 - a known command


def main() -> None:
    """Print the numbers of this source tree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", metavar="REV", help="Compare with this revision.")
    parser.add_argument("--json", action="store_true", help="Print everything as JSON.")
    parser.add_argument("--no-walks", action="store_true", help="Only what is read off the source.")
    chosen = parser.parse_args()
    walks = not chosen.no_walks
    now = measure(TREE, walks=walks)
    base = at_revision(chosen.base, walks=walks) if chosen.base else None
    if chosen.json:
        json.dump({"now": now, "base": base} if base else now, sys.stdout, indent=2)
        print()
        return
    table, before = rows(now), rows(base) if base else {}
    width = max(map(len, table))
    for name, value in table.items():
        old = f"{before.get(name, 'not known'):>28}  ->  " if base else ""
        print(f"{name:{width}}  {old}{value}")
    print("\n".join(details(now)))


if __name__ == "__main__":
    main()
