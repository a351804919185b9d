import pytest

from rota.core.errors import OptionError
from rota.live.agent import machine

TABLE = """0, GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960
1, GPU-bbbb, NVIDIA A100-SXM4-40GB, [N/A]
"""


def fake(tmp_path, script):
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_gpus_that_nvidia_smi_finds(tmp_path):
    program = fake(tmp_path, f"echo \"$@\" > {tmp_path}/asked; cat <<'END'\n{TABLE}END")
    gpus = machine.find_gpus(program)
    assert [(gpu.index, gpu.uuid, gpu.memory_mib) for gpu in gpus] == [
        ("0", "GPU-aaaa", 40960.0),
        ("1", "GPU-bbbb", 0.0),
    ]
    assert machine.gpu_type(gpus) == "a100-sxm4-40gb"
    assert "--query-gpu=index,uuid,name,memory.total" in (tmp_path / "asked").read_text()


def test_no_driver_means_no_gpus(tmp_path):
    assert machine.find_gpus(str(tmp_path / "absent")) == []
    assert machine.gpu_type([]) == ""
    assert machine.parse_gpus("No devices were found\n") == []


def test_a_broken_driver_is_named(tmp_path):
    program = fake(tmp_path, "echo 'Driver/library version mismatch' >&2; exit 18")
    with pytest.raises(OptionError, match="version mismatch"):
        machine.find_gpus(program)


def test_this_machine_has_something():
    assert machine.cpus() >= 1
    assert machine.mem_gib() > 0
