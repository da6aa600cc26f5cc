"""What lies where the texts lie and is not used: seen, counted, and named to the user."""

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from datamodules.wording import listing
from preprocessing.sources import is_hidden

NUM_SHOWN = 5


@dataclass
class Leftovers:
    """Collected while folders are listed."""

    root: Path
    unused: set[Path] = field(default_factory=set)
    hidden: set[Path] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)

    def visible(self, folder: Path) -> list[Path]:
        """Entries of a folder in order of their names, hidden ones left out."""
        found = []
        for path in sorted(folder.iterdir()):
            if is_hidden(path.name):
                self.hidden.add(path)
            else:
                check_name(path)
                found.append(path)
        return found

    def notes(self) -> tuple[str, ...]:
        """One line of each kind."""
        hidden = f"{len(self.hidden)} hidden files or folders are not read"
        kinds = {f"not used below {self.root}": self.unused, hidden: self.hidden}
        found = [f"{kind}: {self.listed(paths)}" for kind, paths in kinds.items() if paths]
        return (*found, *self.remarks)

    def listed(self, paths: Collection[Path]) -> str:
        names = [os.path.relpath(path, self.root) for path in sorted(paths)]
        return listing([name.encode(errors="replace").decode() for name in names], NUM_SHOWN)


def check_name(path: Path) -> None:
    """Refuses a name that no file of ours and no library could hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{str(path)!r}: its name is not UTF-8; give it another") from error
