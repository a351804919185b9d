"""Policies and their parameters from texts and files."""

import pytest

from rota.core.errors import OptionError
from rota.engine.parts import make_costs, make_params, make_policy
from rota.policies.gittins import Gittins
from rota.policies.tiresias import Tiresias

MINE = """\
'''Most GPUs first.'''
from rota.core.policy import Params, PriorityPolicy

class LargestParams(Params, frozen=True):
    '''A factor.'''
    factor: float = 2.0

class _Helper(PriorityPolicy[LargestParams]):
    def key(self, job, now_s):
        return -job.gpus * self.params.factor

class Largest(_Helper):
    '''Serve the job that asks for the most GPUs.'''
    Parameters = LargestParams
"""


def test_a_registered_policy_with_parameters():
    policy = make_policy("tiresias:limits=100/200,promote=4")

    assert isinstance(policy, Tiresias)
    assert policy.params.limits == (100.0, 200.0)
    assert policy.params.promote == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiresia", "unknown policy 'tiresia': did you mean 'tiresias'"),
        ("tiresias:limit=3", "unknown parameter 'limit': did you mean 'limits'"),
        ("tiresias:limits", "is not key=value"),
        ("tiresias:promote=soon", "promote=soon"),
        ("tiresias:limits=x/y", "neither numbers a/b/c nor a readable CSV file"),
        ("fifo:a=1", "has no parameters"),
    ],
)
def test_bad_policies_are_refused_with_the_value_and_a_remedy(text, message):
    with pytest.raises(OptionError) as caught:
        make_policy(text)
    assert message in str(caught.value)


def test_numbers_come_from_a_csv_file_too(tmp_path):
    path = tmp_path / "sizes.csv"
    path.write_text("duration\n121\n\n122.5\n")
    policy = make_policy(f"gittins:distribution={path}")

    assert isinstance(policy, Gittins)
    assert policy.params.distribution == (121.0, 122.5)


def test_numbers_are_tried_before_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "100").mkdir()
    (tmp_path / "100" / "200").write_text("x\n1\n")

    assert make_policy("tiresias:limits=100/200").params.limits == (100.0, 200.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("duration\n", "at least one number"),
        ("", "at least one number"),
        ("duration\n1\nx\n", "line 3: 'x' is not one number"),
        ("a,b\n1,2\n", "line 2: '1,2' is not one number"),
        ("duration\nnan\n", "line 2"),
    ],
)
def test_bad_files_of_numbers_name_the_line(tmp_path, content, message):
    path = tmp_path / "sizes.csv"
    path.write_text(content)

    with pytest.raises(OptionError) as caught:
        make_policy(f"gittins:distribution={path}")
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_policy_in_a_file(tmp_path):
    path = tmp_path / "largest_first.py"
    path.write_text(MINE)
    policy = make_policy(f"{path}:factor=3")

    assert type(policy).__name__ == "Largest"
    assert policy.name == "largest_first"
    assert policy.params.factor == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\n", "defines no policy"),
        ("x = \n", "line 1: invalid syntax"),
        ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        (MINE + "class Other(_Helper):\n    pass\n", "several policies (Largest, Other)"),
    ],
)
def test_bad_policy_files(tmp_path, content, message):
    path = tmp_path / "mine.py"
    path.write_text(content)

    with pytest.raises(OptionError) as caught:
        make_policy(str(path))
    assert message in str(caught.value)
    assert "mine.py" in str(caught.value)


def test_a_policy_file_that_is_not_there():
    with pytest.raises(OptionError, match="No such file"):
        make_policy("nowhere/mine.py")


def test_texts_are_left_alone_where_no_numbers_are_wanted():
    kind = Gittins.Parameters

    assert make_params("policy 'gittins'", kind, {"levels": "7"}).levels == 7


def test_costs_by_name_and_from_a_file(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text("name: ours\nstart_s: 12\n")

    assert make_costs("pollux30").name == "pollux30"
    assert make_costs(str(path)).name == "ours"


def test_a_bad_cost_file_is_named(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text("start: 12\n")

    with pytest.raises(OptionError, match=r"ours\.yaml.*start"):
        make_costs(str(path))
    with pytest.raises(OptionError, match=r"nowhere\.yml"):
        make_costs("nowhere.yml")
