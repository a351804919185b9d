"""What `make dist` builds: the same bytes again, complete, and good to be installed and used."""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import click
import pytest

from agents_net import eventually
from daemon_process import PATIENCE_S, clean_environ
from needs import need
from rota.cli.app import rota as top_command
from rota.core.version import VERSION
from shared_data import CHECKOUT

EPOCH = "1700000000"  # 2023-11-14
STEM = f"rota-{VERSION}"
WHEEL = f"{STEM}-py3-none-any.whl"
PAGE = f"{STEM}.data/data/share/man/man1/rota.1"
NEWER = ("python3.12", "python3.13")


def tracked(*under):
    """Return the files that git has, by name."""
    listing = ["git", "ls-files", "-z", *under]
    try:
        done = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout: {error}")
    return {name for name in done.stdout.split("\0") if name and (CHECKOUT / name).is_file()}


def build(folder, cwd, umask):
    """Build the packages; {name: bytes}."""
    tracked()
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts" / "package.py", folder],
        cwd=cwd, umask=umask, capture_output=True, text=True, check=False,
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert [str(folder / name) for name in sorted(made)] == sorted(done.stdout.splitlines())
    return made


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return the folder with the packages."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder, CHECKOUT, 0o022)
    return folder


def test_the_same_files_give_the_same_bytes(dist, tmp_path):
    again = build(tmp_path / "again", tmp_path, 0o077)
    assert {path.name: path.read_bytes() for path in dist.iterdir()} == again
    assert set(again) == {WHEEL, f"{STEM}.tar.gz", f"{STEM}.cdx.json", f"{STEM}.sha256"}


def test_the_wheel_holds_the_whole_package_and_nothing_else(dist):
    sources = tracked("src/rota")
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        held = {item.filename: wheel.read(item) for item in wheel.infolist()}
        assert {item.date_time[:3] for item in wheel.infolist()} == {(2023, 11, 14)}
    ours = {name: data for name, data in held.items() if name.startswith("rota/")}
    assert set(ours) == {name.removeprefix("src/") for name in sources}
    assert [name for name in ours if ours[name] != (CHECKOUT / "src" / name).read_bytes()] == []
    # What no import would miss.
    assert {"rota/py.typed", "rota/web/index.html", "rota/web/app.js"} <= set(ours)
    assert any(re.match(r"rota/daemon/migrations/versions/\w+\.py", name) for name in ours)

    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert set(held) - set(ours) == {PAGE, *(f"{STEM}.dist-info/{name}" for name in about)}
    metadata = held[f"{STEM}.dist-info/METADATA"].decode()
    assert f"\nVersion: {VERSION}\n" in metadata
    assert "rota = rota.cli:main" in held[f"{STEM}.dist-info/entry_points.txt"].decode()
    machine = [str(CHECKOUT).encode(), str(dist).encode(), str(Path.home()).encode() + b"/"]
    assert [name for name in held for mark in machine if mark in held[name]] == []


def test_the_source_archive_holds_what_git_has(dist):
    with tarfile.open(dist / f"{STEM}.tar.gz") as archive:
        members = archive.getmembers()
    names = {member.name.removeprefix(f"{STEM}/") for member in members}
    assert names - tracked() == {"PKG-INFO", "man/rota.1"}
    assert {"pyproject.toml", "LICENSE", "scripts/man_hook.py", *tracked("src")} <= names
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(int(EPOCH), 0, "")}


def test_checksums_and_the_bill_of_materials_are_of_these_packages(dist):
    lines = (dist / f"{STEM}.sha256").read_text().splitlines()
    told = {name: digest for digest, name in (line.split("  ") for line in lines)}
    real = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dist.iterdir()}
    assert told == {name: real[name] for name in real if not name.endswith(".sha256")}

    bill = json.loads((dist / f"{STEM}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["timestamp"].startswith("2023-11-14T")
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == ("rota", VERSION)
    assert own["hashes"] == [{"alg": "SHA-256", "content": real[WHEEL]}]
    lock = (CHECKOUT / "requirements" / "all.txt").read_text()
    assert [f"{part['name']}=={part['version']}" for part in bill["components"]] == re.findall(
        r"^[\w.-]+==[^\s;]+", lock, re.MULTILINE
    )
    digests = [item["content"] for part in bill["components"] for item in part["hashes"]]
    assert digests == re.findall(r"sha256:(\w+)", lock)
    known = [part["bom-ref"] for part in bill["components"]]
    assert len(set(known)) == len(known) > 30
    (direct,) = bill["dependencies"]
    assert set(direct["dependsOn"]) <= set(known)
    needed = {ref.split("/")[1].split("@")[0] for ref in direct["dependsOn"]}
    assert {"click", "polars", "starlette", "ray", "psycopg"} <= needed
    assert "mdurl" not in needed


def commands(command, path=("rota",)):
    """Yield the path of every command."""
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        yield (*path, name)
        inner = command.get_command(ctx, name)
        if isinstance(inner, click.Group):
            yield from commands(inner, (*path, name))


def test_the_manual_page_tells_of_every_command(dist):
    with zipfile.ZipFile(dist / WHEEL) as wheel:
        page = wheel.read(PAGE).decode()
    assert page.startswith('.TH ROTA 1 "2023-11-14"')
    plain = page.replace(r"\-", "-").replace(r"\&", "")
    told = re.findall(r"^\.SS (rota [a-z -]*[a-z])(?= |$)", plain, re.MULTILINE)
    assert told == [" ".join(path) for path in commands(top_command)]
    assert "\n.B --policy P\nPolicy: name or name:key=value" in plain
    assert "\x08" not in page
    if shutil.which("groff"):
        checked = ["groff", "-man", "-ww", "-Tutf8", "-z"]
        done = subprocess.run(checked, input=page, capture_output=True, text=True, check=True)
        assert done.stderr == ""


class Installed:
    """A virtual environment with the wheel, used by somebody who has no checkout."""

    def __init__(self, folder, environment):
        self.folder = folder
        self.bin = environment / "bin"
        self.env = clean_environ(HOME=folder, PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}")
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "XDG_STATE_HOME"):
            self.env.pop(name, None)

    def run(self, *command):
        """What a command prints; it must succeed."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]], cwd=self.folder, env=self.env,
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def simulates(self):
        """It simulates, away from any checkout."""
        place = self.run("python", "-c", "import rota; print(rota.__file__)")
        assert Path(place).is_relative_to(self.bin.parent)
        assert "simulate" in self.run("rota", "--help")
        assert self.run("rota", "--version") == f"rota {VERSION}\n"
        jobs = "job_id,submit_s,duration_s,num_gpus\na,0,60,4\nb,0,30,8\n"
        (self.folder / "jobs.csv").write_text(jobs)
        on = ("--cluster", "2x4", "--policy", "srtf")
        told = self.run("rota", "simulate", "jobs.csv", *on, "--json", "-o", "out")
        assert json.loads(told) == json.loads((self.folder / "out" / "summary.json").read_text())
        rows = list(csv.DictReader((self.folder / "out" / "jobs.csv").read_text().splitlines()))
        assert {row["job_id"]: float(row["jct_s"]) for row in rows} == {"a": 90.0, "b": 30.0}

    def serves(self):
        """A daemon makes its store, runs a job and shows its page."""
        output = self.folder / "serve.log"
        with output.open("wb") as file:
            daemon = subprocess.Popen(
                [self.bin / "rota", "serve", "--nodes", "1x2", "--listen", "127.0.0.1:0"],
                cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            announced = self.folder / ".local" / "state" / "rota" / "server.json"
            eventually(lambda: announced.exists() or daemon.poll() is not None, PATIENCE_S)
            assert daemon.poll() is None, output.read_text()
            told = self.run("rota", "submit", "--gpus", "1", "--wait", "--", "echo", "from a wheel")
            assert told == "1\n"
            assert json.loads(self.run("rota", "show", "1", "-o", "json"))["state"] == "SUCCEEDED"
            assert self.run("rota", "logs", "1").strip() == "from a wheel"
            url = json.loads(announced.read_text())["url"]
            with urllib.request.urlopen(f"{url}/", timeout=PATIENCE_S) as page:  # noqa: S310
                assert b"app.js" in page.read()
        finally:
            daemon.terminate()
            code = daemon.wait(PATIENCE_S)
        assert code == 0, output.read_text()


def installed(folder, environment, *command):
    """Install something with pip, or fail with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (environment / "share" / "man" / "man1" / "rota.1").is_file()
    home = folder / "home"
    home.mkdir()
    return Installed(home, environment)


def test_an_installed_wheel_simulates_serves_and_submits(dist, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    # What Rota depends on is taken from the environment of the tests, but nothing of Rota: files
    # that add paths, as an editable install has one, are not read there.
    (packages,) = environment.glob("lib/python*/site-packages")
    others = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in others))
    user = installed(
        tmp_path, environment, sys.executable, "-m", "pip", "--python", environment,
        "--disable-pip-version-check", "install", "--no-deps", "--no-index", "--no-compile",
        dist / WHEEL,
    )  # fmt: skip
    user.simulates()
    user.serves()


def interpreter(name):
    """Return where a Python is, or None; what PATH has may be a stand-in of pyenv."""
    managed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for path in (shutil.which(name), *sorted(managed.glob(f"*/bin/{Path(name).name}"))):
        asked = path and subprocess.run([path, "--version"], check=False, capture_output=True)
        if asked and asked.returncode == 0:
            return path
    return None


@pytest.mark.soak
@pytest.mark.parametrize("name", [sys.executable, *NEWER])
def test_a_wheel_installs_with_all_that_it_needs(dist, tmp_path, name):
    python = interpreter(name)
    need(python, name, f"install {name}")
    environment = tmp_path / "environment"
    subprocess.run([python, "-m", "venv", environment], check=True)
    user = installed(
        tmp_path, environment, environment / "bin" / "python", "-m", "pip",
        "--disable-pip-version-check", "install", f"{dist / WHEEL}[all]",
    )  # fmt: skip
    user.run("python", "-m", "pip", "check")
    user.simulates()
    user.serves()


@pytest.mark.soak
def test_a_wheel_without_extras_simulates(dist, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    user = installed(
        tmp_path, environment, environment / "bin" / "python", "-m", "pip",
        "--disable-pip-version-check", "install", dist / WHEEL,
    )  # fmt: skip
    user.simulates()
