"""What must hold of the source so that `make compiled` can compile it."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        import compile as script

        yield script
    del sys.modules["compile"]


def structs(source):
    """Names of the msgspec structs that a module defines."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Struct") for base in node.bases)
    ]


def test_hot_modules_exist_and_define_no_structs(script):
    found = {module: structs((script.SOURCE / f"{module}.py").read_text()) for module in script.HOT}
    assert found == {module: [] for module in script.HOT}


def test_a_struct_would_be_found():
    assert structs("import msgspec\nclass A(msgspec.Struct, frozen=True): ...") == ["A"]


def test_classes_with_plain_subclasses_are_opened_after_the_docstring(script):
    for module, name in script.OPEN.items():
        source = script.opened((script.SOURCE / f"{module}.py").read_text(), name)
        tree = ast.parse(source)
        assert ast.get_docstring(tree)
        [kind] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name]
        assert [ast.unparse(one) for one in kind.decorator_list] == [
            "mypyc_attr(allow_interpreted_subclasses=True)"
        ]


def test_a_class_that_is_gone_is_named(script):
    with pytest.raises(SystemExit, match="no class Gone any more"):
        script.opened('"""Text."""\n\n\nclass Here:\n    pass\n', "Gone")


@pytest.mark.soak
def test_compiled_modules_write_the_same_logs(script, tmp_path):
    import subprocess

    command = [sys.executable, str(ROOT / "scripts" / "compile.py")]
    subprocess.run([*command, str(tmp_path / "compiled")], check=True)
    subprocess.run([*command, "--check", str(tmp_path / "compiled")], check=True)
