"""Names, options and typed parameters."""

import sys
import zipfile
from typing import Literal

import msgspec
import pytest

from rota.core import registry
from rota.core.errors import OptionError


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int = 1
    share: float = 0.5
    strict: bool = False
    limits: tuple[float, ...] = ()
    pair: tuple[int, int] = (1, 2)
    text: str = ""


class Bare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("fifo", "fifo", {}),
        ("fifo:", "fifo", {}),
        (" fifo : a = 1 , b-c=x ", "fifo", {"a": "1", "b_c": "x"}),
        ("las:limits=1/2,", "las", {"limits": "1/2"}),
        ("csv:path=a:b=c", "csv", {"path": "a:b=c"}),
    ],
)
def test_a_text_splits_into_a_name_and_options(text, name, options):
    assert registry.split(text) == (name, options)


def test_an_option_without_a_value_is_refused():
    with pytest.raises(OptionError, match=r"'las:strict': 'strict' is not key=value: write las:"):
        registry.split("las:strict")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Numbers()),
        ({"count": "3", "share": "0.25"}, Numbers(count=3, share=0.25)),
        ({"count": 3, "strict": True}, Numbers(count=3, strict=True)),
        ({"limits": "1/2.5/4"}, Numbers(limits=(1.0, 2.5, 4.0))),
        ({"limits": "7"}, Numbers(limits=(7.0,))),
        ({"limits": ""}, Numbers()),
        ({"limits": [1, 2]}, Numbers(limits=(1.0, 2.0))),
        ({"pair": "8/9"}, Numbers(pair=(8, 9))),
        ({"text": "a/b"}, Numbers(text="a/b")),
    ],
)
def test_parameters_are_typed(options, expected):
    assert registry.parse_params("las", Numbers, options) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [(word, True) for word in ("yes", "on", "true", "True", "1", "YES")]
    + [(word, False) for word in ("no", "off", "false", "0", "Off")],
)
def test_booleans_have_many_spellings(text, value):
    assert registry.parse_params("las", Numbers, {"strict": text}).strict is value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coutn": "1"}, r"^las: unknown parameter 'coutn': did you mean 'count'\? known: count, "),
        ({"zzz": "1"}, r"^las: unknown parameter 'zzz': known: count, limits, pair, share, "),
        ({"count": "many"}, r"^las: cannot use count=many: .*\$\.count"),
        ({"strict": "perhaps"}, r"^las: cannot use strict=perhaps: "),
        ({"limits": "1/x"}, r"^las: cannot use limits=1/x: "),
        ({"pair": "1/2/3"}, r"^las: cannot use pair=1/2/3: "),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        registry.parse_params("las", Numbers, options)


def test_a_choice_says_what_there_is():
    class Chosen(msgspec.Struct):
        unit: Literal["", "gpu", "cpu"] = ""

    with pytest.raises(OptionError, match=r"^swf: cannot use unit=tpu: give one of gpu, cpu$"):
        registry.parse_params("swf", Chosen, {"unit": "tpu"})


def test_a_part_without_parameters_says_so():
    with pytest.raises(OptionError, match=r"^fifo: fifo has no parameters$"):
        registry.parse_params("fifo", Bare, {"a": "1"})


def test_names_are_sorted_and_loading_gives_the_class():
    names = registry.names(registry.POLICIES)
    assert names == sorted(names)
    assert {"fifo", "las"} <= set(names)
    loaded = registry.load(registry.POLICIES, "fifo")
    assert loaded is sys.modules["rota.policies.fifo"].Fifo


@pytest.mark.parametrize(
    ("group", "name", "message"),
    [
        (registry.POLICIES, "fifoo", r"^unknown policy 'fifoo': did you mean 'fifo'\? known: "),
        (registry.COSTS, "zzz", r"^unknown cost model 'zzz': known: bytes, "),
        ("rota.nothing", "x", r"^unknown rota.nothing 'x': known: $"),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(group, name, message):
    with pytest.raises(OptionError, match=message):
        registry.load(group, name)


def test_every_group_has_a_word_for_its_messages():
    assert all(registry.names(group) for group in registry.SINGULAR)


# --- installed packages --------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return `packages(folder, name, text)`: a package on the path, and what is registered then."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def install(folder, name, text):
        place = tmp_path / folder
        (place / name).mkdir(parents=True)
        (place / name / "entry_points.txt").write_text(text)
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
        return registry._installed.__wrapped__()

    return install


def test_the_packages_are_those_that_the_standard_library_finds(packages):
    mine = "[console_scripts]\nx = y:z\n\n[rota.policies]\n# a comment\nmine = my.module:Mine\n"
    found = packages("one", "mine-1.0.dist-info", mine)

    asked = {group: {} for group in registry.SINGULAR}
    for group, name, where in registry._ask_importlib():
        asked[group][name] = where
    assert asked[registry.POLICIES]["mine"] == "my.module:Mine"
    assert found == {group: dict(sorted(entries.items())) for group, entries in asked.items()}


def test_of_a_package_that_is_installed_twice_the_first_counts(packages):
    packages("later", "My.Own-1.dist-info", "[rota.policies]\nolder = a:A\n")
    found = packages("sooner", "my_own-2.dist-info", "[rota.policies]\nnewer = a:A\n")

    assert "newer" in found[registry.POLICIES]
    assert "older" not in found[registry.POLICIES]


def test_a_package_in_an_archive_is_left_to_the_standard_library(tmp_path, monkeypatch):
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed-1.dist-info/METADATA", "Name: packed\nVersion: 1\n")
        file.writestr("packed-1.dist-info/entry_points.txt", "[rota.costs]\nmine = a:A\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])

    assert registry._installed.__wrapped__()[registry.COSTS]["mine"] == "a:A"
