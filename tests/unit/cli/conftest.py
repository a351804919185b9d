"""Commands, called in this process."""

import json
import os

import pytest
from structlog.testing import capture_logs

from fake_service import FakeService
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


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def daemon(service, here, monkeypatch):
    """Return its URL; the commands find it through the state folder."""
    state = here / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_STATE", str(state))
    for name in ("ROTA_SERVER", "ROTA_TOKEN", "ROTA_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    from rota.api.app import create_app  # not needed by most tests
    from rota.api.serving import serve

    with capture_logs():
        server = serve(create_app(service), port=0)
        (state / "server.json").write_text(json.dumps({"pid": os.getpid(), "url": server.url}))
        token = state / "token"
        token.touch(mode=0o600)
        token.write_text("admin-token\n")
        yield server.url
        server.stop()


@pytest.fixture
def job(rota, daemon):
    """Return the id of a submitted job, called first."""
    return rota("submit", "--gpus", 2, "--name", "first", "--", "python", "train.py")[1].strip()


@pytest.fixture
def job_file(here):
    path = here / "job.yaml"
    path.write_text("name: a\nrun: echo a\nqueue: q\n---\nname: b\nrun: echo b\n")
    return path
