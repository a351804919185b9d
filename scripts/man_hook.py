"""Put the manual page into a wheel, if there is one: `make dist` writes `man/rota.1` beforehand."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("man", "rota.1")


class ManHook(BuildHookInterface[Any]):
    """Where `man`, and tools that install commands for a user, look for pages."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page; an editable install has none."""
        page = Path(self.root) / PAGE
        if version == "standard" and page.is_file():
            build_data["shared_data"][str(page)] = "share/man/man1/rota.1"
