"""`rota.yaml`."""

import pytest

from rota.core.errors import ClusterSpecError, InputError
from rota.daemon.settings import Queue, Settings, read_settings


def read(tmp_path, text, **said):
    path = tmp_path / "rota.yaml"
    path.write_text(text)
    return read_settings(path, said)


def test_without_a_file_the_defaults_hold():
    settings = read_settings(None, {"policy": "srtf", "cluster": None})
    assert settings == Settings(policy="srtf")
    assert settings.address == ("127.0.0.1", 7842)


def test_the_command_line_wins(tmp_path):
    settings = read(tmp_path, "policy: fifo\nlisten: '[::1]:80'\n", policy="srtf")
    assert settings.scheduling.policy == "srtf"
    assert settings.address == ("::1", 80)


def test_queues_by_name_or_in_a_list(tmp_path):
    by_name = read(tmp_path, "queues: {a: {quota: 2}, b: }\n")
    in_a_list = read(tmp_path, "queues: [{name: a, quota: 2}, {name: b}]\n")
    assert by_name == in_a_list
    assert by_name.scheduling.queues == (Queue("a", quota=2), Queue("b"))


def test_an_empty_file_says_nothing(tmp_path):
    assert read(tmp_path, "") == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy: fifo\n", "unknown field `polcy`.*the keys are policy"),
        ("seed: many\n", "Expected `int`.*seed"),
        ("[1]\n", "write `key: value` lines"),
        ("a: [\n", "not valid YAML"),
        ("listen: '7842'\n", "write HOST:PORT"),
        ("backend: mesos\n", "write local, slurm, pretend"),
        ("local: {silent_s: 9, lost_s: 5}\n", "0 < silent_s < lost_s"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as error:
        read(tmp_path, text)
    assert "rota.yaml" in str(error.value) or "listen" in text


def test_queues_form_a_tree(tmp_path):
    with pytest.raises(ClusterSpecError, match="unknown parent"):
        read(tmp_path, "queues: {a: {parent: b}}\n")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot read the configuration"):
        read_settings(tmp_path / "none.yaml", {})
