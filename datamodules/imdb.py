"""50,000 film reviews from IMDB, half for training and half for testing, positive or negative.

Maas et al., "Learning Word Vectors for Sentiment Analysis", 2011.
"""

from pathlib import Path

from datamodules.archives import past_single_folder, unpacked
from datamodules.cache_folder import cache_folder
from datamodules.text_datamodule import TextDataModule, fetched
from datamodules.text_layout import find_sources
from datamodules.text_readers import TextSource

URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"


class IMDB(TextDataModule):
    """Reviews from `root` (the unpacked aclImdb, or files named train and test, with labels
    neg/pos or 0/1), or downloaded where root is None."""

    label_names = {"0": "neg", "1": "pos"}

    def find(self) -> dict[str, TextSource]:
        if self.root is not None:
            root = Path(self.root)
        else:
            cache = cache_folder(self.cache_dir)
            archive = fetched(URL, MD5, cache / "downloads" / "aclImdb_v1.tar.gz")
            root = past_single_folder(unpacked(archive, cache))
        # reviews without a label, which the archive holds as well
        return find_sources(root, {}, ignored_folders=("unsup",))
