"""127,600 news headlines with their first sentence, in 4 classes.

Zhang, Zhao and LeCun, "Character-level Convolutional Networks for Text Classification", 2015.
"""

from pathlib import Path

from datamodules.cache_folder import cache_folder
from datamodules.text_columns import Columns
from datamodules.text_datamodule import TextDataModule, fetched
from datamodules.text_layout import find_sources
from datamodules.text_readers import TextSource

URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"
MD5 = {
    "train.csv": "b1a00f826fdfbd249f79597b59e1dc12",
    "test.csv": "d52ea96a97a2d943681189a97654912d",
}


class AGNews(TextDataModule):
    """Headlines from `root` (train.csv and test.csv), or downloaded where root is None."""

    columns = Columns(text=(1, 2), label=0, header=False)
    label_names = {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"}

    def find(self) -> dict[str, TextSource]:
        if self.root is not None:
            return find_sources(Path(self.root), {}, columns=self.columns)
        folder = cache_folder(self.cache_dir) / "downloads" / "ag_news"
        for name, md5 in MD5.items():
            fetched(f"{URL}/{name}", md5, folder / name)
        return find_sources(folder, {}, columns=self.columns)
