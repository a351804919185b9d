"""Commands, called in this process."""

import pytest

from rota.cli.app import run

JOBS = """\
job_id,submit_s,num_gpus,duration_s,vc
0,0,4,100,a
1,10,4,20,b
2,20,1,30,a
3,25,8,10,b
4,30,2,60,a
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return an empty folder with a small trace, which is the working directory."""
    for name in ("ROTA_DEBUG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


@pytest.fixture
def rota(here, capsys):
    """Return `rota(*args)`: (exit code, stdout, stderr) of a command."""

    def call(*args):
        code = run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
