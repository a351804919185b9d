"""Write a bill of materials (CycloneDX 1.6, JSON) of `rota[all]` from requirements/all.txt.

Every pinned package is a component with the SHA-256 of each file that the lock allows for it.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?:\s*;\s*(?P<marker>.*))?")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Pin:
    """A package at a version, where it is needed, and the digests of its files."""

    name: str
    version: str
    marker: str
    sha256: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its address among all packages."""
        return f"pkg:pypi/{self.name}@{self.version}"

    def component(self) -> dict[str, Any]:
        """Its entry in the bill."""
        known = {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in self.sha256],
        }
        if self.marker:
            known["properties"] = [{"name": "rota:marker", "value": self.marker}]
        return known


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> Iterator[Pin]:
    """What a requirements file pins, in its order.

    Raises:
        SystemExit: A line is no pin, or has no digest.
    """
    for line in lock.replace("\\\n", " ").splitlines():
        text = line.split("--hash", 1)[0].strip()
        if not text or text.startswith("#"):
            continue
        found, digests = PIN.fullmatch(text), HASH.findall(line)
        if found is None or not digests:
            raise SystemExit(f"requirements/all.txt: {text!r} is not pinned with a hash: make lock")
        yield Pin(normal(found["name"]), found["version"], found["marker"] or "", tuple(digests))


def direct(project: dict[str, Any]) -> set[str]:
    """Names of the packages that the project asks for itself, in one of its extras or always."""
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(item for extra in extras for item in extra)]
    names = {normal(found[0]) for item in wanted if (found := NAME.match(item))}
    return names - {normal(project["name"])}


def bill(tree: Path, wheel_sha256: str, epoch: int) -> str:
    """The bill as text: the same for the same lock, wheel and date."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    locked = list(pins((tree / "requirements" / "all.txt").read_text()))
    wanted = direct(project)
    missing = wanted - {pin.name for pin in locked}
    if missing:
        raise SystemExit(f"requirements/all.txt lacks {', '.join(sorted(missing))}: make lock")
    own = Pin(normal(project["name"]), project["version"], "", (wheel_sha256,))
    used = sorted(pin.purl for pin in locked if pin.name in wanted)
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": {
                **own.component(),
                "type": "application",
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": [pin.component() for pin in locked],
        "dependencies": [{"ref": own.purl, "dependsOn": used}],
        # Who needs the other components is not told by a lock.
        "compositions": [
            {"aggregate": "unknown", "dependencies": [pin.purl for pin in locked]},
        ],
    }
    text = json.dumps(content, sort_keys=True)
    serial = f"urn:uuid:{uuid5(NAMESPACE_URL, text)}"
    return json.dumps({**content, "serialNumber": serial}, indent=2, sort_keys=True) + "\n"
