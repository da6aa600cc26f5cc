"""The user's own texts: tables, JSON lines, Parquet, folders of text files."""

from pathlib import Path
from typing import Any, Literal

from datamodules.text_columns import Columns
from datamodules.text_datamodule import TextDataModule
from datamodules.text_layout import find_sources
from datamodules.text_readers import CHOOSERS, TextSource
from preprocessing.tables import one_separator


class TextFiles(TextDataModule):
    """Texts and labels in files; what is not given as val and test is cut from train.

    Args:
        root: A file, or a folder with files or folders named train, val and test, with
            `<class>/*.txt`, or with one file a class.
        train_file: Path below root, where the names do not say it.
        val_file: Likewise.
        test_file: Likewise.
        text_columns: Names or numbers (from 0) of the columns that make up the text.
        label_column: Name or number of the column of the class.
        header: Whether a table's first row holds column names; None looks whether it does.
        separator: Character between a table's cells, or tab; None looks at the rows where the
            name's own (.csv: comma, .tsv: tab) does not fit.
        quoted: Whether quotes enclose a table's cells; None: in CSV yes, in TSV no.
        encoding: Of text files; auto is UTF-8 unless a byte order mark says otherwise.
        encoding_errors: strict stops at an undecodable byte, replace reads it as U+FFFD.
        common: Everything else, see TextDataModule.
    """

    def __init__(
        self,
        root: str | None = None,
        train_file: str | None = None,
        val_file: str | None = None,
        test_file: str | None = None,
        text_columns: list[str | int] | None = None,
        label_column: str | int | None = None,
        header: bool | None = None,
        separator: str | None = None,
        quoted: bool | None = None,
        encoding: str = "auto",
        encoding_errors: Literal["strict", "replace"] = "strict",
        **common: Any,
    ) -> None:
        super().__init__(root, **common)
        try:
            "".encode("utf-8" if encoding == "auto" else encoding)
        except LookupError as error:
            raise ValueError(f"--data.encoding: no encoding is called {encoding!r}") from error
        if root is None:
            raise ValueError("--data text_files needs --data.root, the folder or file of the texts")
        self.folder = Path(root)
        self.chosen = {"train": train_file, "val": val_file, "test": test_file}
        self.columns = Columns(
            text=tuple(text_columns or ()),
            label=label_column,
            header=header,
            quoted=quoted,
            encoding=encoding,
            encoding_errors=encoding_errors,
            separator=one_separator(separator, "--data.separator"),
        )

    def find(self) -> dict[str, TextSource]:
        return find_sources(self.folder, self.chosen, columns=self.columns)

    def reading(self) -> list[str]:
        """Also which flags for tables were given though there are none."""
        formats = {source.format for source in self.sources.values()}
        given = {
            "separator": self.columns.separator is not None and "table" not in formats,
            "header": self.columns.header is not None and "table" not in formats,
            "quoted": self.columns.quoted is not None and "table" not in formats,
            "text_columns": bool(self.columns.text) and not formats & CHOOSERS.keys(),
            "label_column": self.columns.label is not None and not formats & CHOOSERS.keys(),
        }
        return super().reading() + [
            f"--data.{name} is not used: the files are {' and '.join(sorted(formats))}"
            for name, is_unused in given.items()
            if is_unused
        ]
