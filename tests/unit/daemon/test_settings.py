"""`rota.yaml`."""

import pytest

from rota.core.errors import ClusterSpecError, InputError
from rota.daemon.settings import LocalSettings, Queue, Settings, needs_restart, read_settings


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
        ("polcy: fifo\n", "yaml: polcy: there is no such key .did you mean 'policy'.*here are pol"),
        ("zzz: fifo\n", "yaml: zzz: there is no such key: the keys here are policy, placement"),
        (
            "local: {silnt_s: 1}\n",
            "yaml: local.silnt_s: .*'silent_s'.*here are silent_s, lost_s, ",
        ),
        ("queues: {a: {quotta: 1}}\n", "yaml: queues.a.quotta: .*'quota'.*here are name, parent"),
        ("queues: [{name: a, quotta: 1}]\n", "yaml: queues.a.quotta: .*'quota'"),
        ("queues: {a: 4}\n", "yaml: queues.a: write keys with values: parent, quota"),
        ("queues: {b: , a: {limit: x}}\n", "queues.a.limit is 'x': write a number or nothing"),
        ("queues: 4\n", "yaml: queues is 4: write a list"),
        ("seed: many\n", "yaml: seed is 'many': write a whole number"),
        (
            "log_level: loud\n",
            "yaml: log_level is 'loud': write one of debug, info, warning, error",
        ),
        ("[1]\n", "write `key: value` lines"),
        ("a: [\n", "not valid YAML"),
        ("listen: '7842'\n", "write HOST:PORT"),
        ("backend: mesos\n", "write local, slurm, kubernetes, ray, pretend"),
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


def test_what_needs_a_restart_is_told_key_by_key():
    new = Settings(local=LocalSettings(silent_s=3.0), durable=False, tls_cert="a.crt", seed=4)
    assert needs_restart(Settings(), new) == [
        "tls_cert: (empty) -> a.crt (after a restart)",
        "durable: true -> false (after a restart)",
        "local.silent_s: 15 -> 3 (after a restart)",
    ]
