"""A hook of the wheel's build: manual pages and completions go where the system's tools look for them."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPLETIONS = {
    "kquota.bash": "share/bash-completion/completions/kquota",
    "_kquota": "share/zsh/site-functions/_kquota",
    "kquota.fish": "share/fish/vendor_completions.d/kquota.fish",
}


class DataFiles(BuildHookInterface[Any]):  # type: ignore[misc]  # hatchling is there when a wheel is built
    """Hatchling's own table wants every page by its name; here a page's section says where it goes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the data files."""
        root = Path(self.root)
        for page in (root / "man").iterdir():
            build_data["shared_data"][str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
        for name, place in _COMPLETIONS.items():
            build_data["shared_data"][str(root / "kquota" / "cli" / "completion" / name)] = place
