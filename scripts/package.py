"""Build what is given to others: source archive, wheel, bill of materials, checksums.

`make dist` calls this. It takes the files that git has, as they are now, to a folder of its own,
adds the manual page, makes the source archive there, and the wheel from the source archive. All
times are that of the last commit (SOURCE_DATE_EPOCH overrides it), so the same files give the same
bytes, wherever they are.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from man_hook import PAGE
from sbom import bill

TREE = Path(__file__).resolve().parents[1]
EPOCH = "SOURCE_DATE_EPOCH"


def git(*args: str) -> str:
    """What git says of this checkout.

    Raises:
        SystemExit: This is none.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            ["git", *args],  # noqa: S607 - whichever git is in use
            cwd=TREE, check=True, capture_output=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"packages are made from a checkout with git: {error}") from error
    return done.stdout


def python(*args: str | Path, cwd: Path, epoch: int) -> None:
    """Run Python; its output is shown only if it fails."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, *map(str, args)],
        cwd=cwd, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, EPOCH: str(epoch)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout)


def stage(folder: Path) -> None:
    """Copy the files that git has."""
    for name in git("ls-files", "-z").split("\0"):
        if name and (TREE / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / name, target)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(out: Path, epoch: int) -> list[Path]:
    """Write all packages into a folder; their paths."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        checkout, made = folder / "checkout", folder / "made"
        stage(checkout)
        python(TREE / "scripts" / "manpage.py", checkout / PAGE, cwd=TREE, epoch=epoch)
        python("-m", "hatchling", "build", "-t", "sdist", "-d", made, cwd=checkout, epoch=epoch)
        (source,) = made.glob("*.tar.gz")
        shutil.unpack_archive(source, folder / "unpacked")  # ours: filters came with 3.11.4
        (unpacked,) = (folder / "unpacked").iterdir()
        python("-m", "hatchling", "build", "-t", "wheel", "-d", made, cwd=unpacked, epoch=epoch)
        (wheel,) = made.glob("*.whl")
        sbom = made / f"{unpacked.name}.cdx.json"
        sbom.write_text(bill(unpacked, digest(wheel), epoch))
        packages = sorted([source, wheel, sbom])
        sums = made / f"{unpacked.name}.sha256"
        sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in packages))
        return [Path(shutil.move(path, out / path.name)) for path in [*packages, sums]]


def main() -> int:
    """Build, and say what was built."""
    parser = argparse.ArgumentParser(description="Build the packages of Rota.")
    parser.add_argument("out", type=Path, help="folder for the packages, e.g. dist")
    out: Path = parser.parse_args().out
    epoch = int(os.environ.get(EPOCH) or git("log", "-1", "--format=%ct"))
    if git("status", "--porcelain", "--untracked-files=no"):
        print("warning: there are changes that are not committed; they are in the packages, too",
              file=sys.stderr)  # fmt: skip
    for path in build(out, epoch):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
