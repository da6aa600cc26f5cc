"""What all text sources share: the corpus, batches of similar length and the data contract.

A source is a subclass with one method, `find`, that says where the files of each split are.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from datamodules.bucket_sampler import BucketBatchSampler, padding_share
from datamodules.cache_folder import cache_folder
from datamodules.downloads import DownloadError, fetch
from datamodules.findings import Finding, note
from datamodules.full_check import CHECK_FORMAT, remembered, shown
from datamodules.lazy_loader import LazyLoading
from datamodules.packed_texts import TextBatch, TextDataset
from datamodules.samplers import SameBatches
from datamodules.text_check import look_at_tokens, wrongly_decoded
from datamodules.text_columns import Columns
from datamodules.text_corpus import CorpusOptions, TextCorpus, load_corpus
from datamodules.text_readers import TextSource
from datamodules.word_vectors import initialise_embedding, read_word_vectors
from preprocessing.text import TextTokenizer
from tasks.base import Task
from tasks.single_label import SingleLabel

MAX_EXPORT_BATCH = 1024
MEASURED_BATCHES = 1000  # the padding share is reported for this many


def fetched(address: str, md5: str, target: Path) -> Path:
    """A published file, downloaded once.

    Raises:
        FileNotFoundError: It cannot be had.
    """
    try:
        return fetch([address], md5, target)
    except DownloadError as error:
        raise FileNotFoundError(
            f"the texts could not be downloaded; name a folder that holds them by --data.root, or "
            f"try again (it goes on where it stopped):\n  {error}"
        ) from error


@runtime_checkable
class StartsFromCounts(Protocol):
    """A network that looks at the training texts before its first step."""

    def start_from_counts(self, batches: Iterable[TextBatch]) -> None: ...


class TextDataModule(LazyLoading):
    """Batches of texts: {"tokens": int64 [N,L], "lengths": int64 [N]} and targets int64 [N].

    Args:
        root: Folder or file of the data, where a source needs one.
        batch_size: Texts in one forward pass over all ranks.
        num_workers: Loader processes of each rank; None chooses by data and machine.
        seed: Seed of splits and sample order.
        batch_tokens: Largest number of tokens of a batch over all ranks, padding included; then
            it decides how many texts a batch has. None is off.
        tokenizer: basic_english (words, as torchtext), char, bpe, the path of a tokenizer.json,
            or auto: char for scripts without spaces, otherwise basic_english.
        vocab: File with one token a line in the order of ids, instead of counting.
        max_size: Largest number of tokens in the vocabulary, `<pad>` and `<unk>` not counted.
        min_frequency: How often a token must occur in train to get an id.
        max_length: Tokens of a text that are read; the rest is cut off.
        val_fraction: Share of train that becomes val where the source has none; None is 0.1.
        test_fraction: Share of train that becomes test where the source has none; None is 0.1.
        keep_duplicates: Leaves texts in train that val or test also hold.
        drop_repeats: Takes texts out of train that repeat one of the same class there.
        join_labels: Labels that differ only in case, or only in how a number is written (1, 1.0),
            are one class.
        vectors: Word vectors in text form (GloVe, fastText .vec) for the network's embedding.
        cache_dir: Folder for tokenized texts and downloads; None is one in the user's cache.
        timeout: Seconds without a batch until a line names the sample that is waited for.
        on_timeout: Whether to wait on then, or to stop training with a checkpoint.
    """

    noun = "text"
    determines = ("num_classes", "vocab_size", "max_length")
    joins_labels = True  # by --data.join_labels
    columns = Columns()
    default_fraction = 0.1
    label_names: Mapping[str, str] = {}  # class names for labels that are mere numbers

    def __init__(
        self,
        root: str | None = None,
        batch_size: Annotated[int, ">= 1"] = 64,
        num_workers: Annotated[int, ">= 0"] | None = None,
        seed: int = 0,
        batch_tokens: Annotated[int, ">= 1"] | None = None,
        tokenizer: str = "auto",
        vocab: str | None = None,
        max_size: Annotated[int, ">= 1"] = 25_000,
        min_frequency: Annotated[int, ">= 1"] = 1,
        max_length: Annotated[int, ">= 1"] = 400,
        val_fraction: Annotated[float, "0 < x < 1"] | None = None,
        test_fraction: Annotated[float, "0 < x < 1"] | None = None,
        keep_duplicates: bool = False,
        drop_repeats: bool = False,
        join_labels: list[Literal["case", "number"]] | None = None,
        vectors: str | None = None,
        cache_dir: str | None = None,
        timeout: Annotated[float, "> 0"] = 300.0,
        on_timeout: Literal["wait", "stop"] = "wait",
    ) -> None:
        super().__init__(timeout, on_timeout)
        self.fractions_given = {"val": val_fraction, "test": test_fraction}
        self.root = root
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.seed = seed
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.options = CorpusOptions(
            tokenizer=tokenizer,
            vocab=vocab,
            max_size=max_size,
            min_frequency=min_frequency,
            max_length=max_length,
            val_fraction=self.default_fraction if val_fraction is None else val_fraction,
            test_fraction=self.default_fraction if test_fraction is None else test_fraction,
            keep_duplicates=keep_duplicates,
            drop_repeats=drop_repeats,
            join_labels=tuple(join_labels or ()),
            seed=seed,
            class_names=dict(self.label_names),
        )
        self.vectors = vectors
        self.cache_dir = cache_dir

    @abstractmethod
    def find(self) -> dict[str, TextSource]:
        """The files of "train" and, where the source has them, "val" and "test"."""

    @cached_property
    def corpus(self) -> TextCorpus:
        """Read, split and tokenized, or taken from the cache."""
        options = replace(self.options, columns=self.columns)
        return load_corpus(self.sources, options, cache_folder(self.cache_dir))

    @cached_property
    def sources(self) -> dict[str, TextSource]:
        return self.find()

    def setup(self, stage: str | None = None) -> None:
        """Loads the data; does nothing the second time.

        Raises:
            ValueError: A split has fewer texts than there are ranks.
        """
        self.check_ranks({name: len(split) for name, split in self.corpus.splits.items()})

    # ---- the data contract -------------------------------------------------------------

    @property
    def class_names(self) -> list[str]:
        return self.corpus.class_names

    @property
    def task(self) -> Task:
        return SingleLabel(self.class_names)

    @property
    def fingerprint(self) -> str:
        return self.corpus.fingerprint

    @property
    def files(self) -> dict[str, str]:
        """What a bundle needs besides the network."""
        return {"tokenizer.json": self.corpus.definition}

    @cached_property
    def findings(self) -> list[Finding]:
        lengths = self.corpus.splits["train"].lengths
        sampler = BucketBatchSampler(
            lengths, self.batch_size, self.seed, batch_tokens=self.batch_tokens
        )
        batches = [b.indices for _, b in zip(range(MEASURED_BATCHES), sampler, strict=False)]
        sizes = ", ".join(f"{len(split):,} {name}" for name, split in self.corpus.splits.items())
        about = (
            f"{sizes} texts, {self.corpus.vocab_size:,} tokens in the vocabulary, "
            f"{padding_share(lengths, batches):.1%} padding in batches"
        )
        return [*map(note, [about, *self.reading()]), *self.corpus.findings]

    def look(self, full: bool) -> list[Finding]:
        """What the data check looks for in tokens and, if `full`, in every text once more."""
        found = [*look_at_tokens(self.corpus, full)]
        if full:
            name = f"{self.corpus.fingerprint}-{CHECK_FORMAT}"
            folder = cache_folder(self.cache_dir) / "checks" / name
            found += remembered(folder, self._read_again)
        return found

    def _read_again(self) -> dict[str, list[str]]:
        rows = (row for source in self.find().values() for row in source.rows(self.columns))
        about = sum(map(len, self.corpus.splits.values()))  # without repeated ones
        return wrongly_decoded(text for text, *_ in shown(rows, about))

    def reading(self) -> list[str]:
        """Which columns were taken, and what lies there or was given and is not used."""
        names: dict[str, list[str]] = {}
        for source in self.sources.values():
            if chosen := source.chosen(self.columns):
                names.setdefault(str(chosen), []).append(source.files[0].name)
        return [
            *(f"{', '.join(files)}: {columns}" for columns, files in names.items()),
            *(note for source in self.sources.values() for note in source.notes),
            *(
                f"--data.{split}_fraction {share} is not used: {split} is given"
                for split, share in self.fractions_given.items()
                if share is not None and split in self.sources
            ),
        ]

    @property
    def input_spec(self) -> dict[str, Any]:
        return {
            "inputs": [
                {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]},
                {"name": "lengths", "dtype": "int64", "shape": ["batch"]},
            ],
            "dynamic": {"batch": [1, MAX_EXPORT_BATCH], "length": [1, self.max_length]},
        }

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How the predictor turns a text into inputs of this network."""
        return {
            "kind": "text",
            "tokenizer": "tokenizer.json",
            "max_length": self.max_length,
            "vocab_size": self.corpus.vocab_size,
        }

    @property
    def split_targets(self) -> dict[str, np.ndarray]:
        """int64 [M] of each split."""
        return {name: split.targets for name, split in self.corpus.splits.items()}

    def network_arguments(self) -> dict[str, Any]:
        return {
            "num_classes": self.task.num_outputs,
            "vocab_size": self.corpus.vocab_size,
            "max_length": self.max_length,
        }

    def initialise(self, network: nn.Module) -> None:
        """Shows train to a new network that counts, and puts word vectors into its embedding.

        Raises:
            ValueError: The file of the vectors and the network do not fit.
        """
        if isinstance(network, StartsFromCounts):
            network.start_from_counts(self._text_loader("train", training=False))
        if self.vectors is not None:
            tokens = TextTokenizer(self.corpus.definition).tokens()
            vectors, found = read_word_vectors(Path(self.vectors), tokens)
            initialise_embedding(network, vectors, found)

    def inputs_of(self, split: str, rows: np.ndarray) -> dict[str, np.ndarray]:
        return self.corpus.splits[split].read(rows)

    # ---- loading -----------------------------------------------------------------------

    def train_loader(self) -> DataLoader:
        return self._text_loader("train", training=True)

    def val_dataloader(self) -> DataLoader:
        if self._is_overfitting():
            return self._text_loader("train", training=True)
        return self._text_loader("val", training=False)

    def test_dataloader(self) -> DataLoader:
        return self._text_loader("test", training=False)

    def _text_loader(self, name: str, training: bool) -> DataLoader:
        split, ranks = self.corpus.splits[name], self._ranks()
        sampler = BucketBatchSampler(
            split.lengths, self.batch_size, self.seed, *ranks, self.batch_tokens, training
        )
        overfits = training and self._is_overfitting()
        batches = SameBatches(sampler) if overfits else sampler
        tokens = self.batch_tokens or self.batch_size * self.max_length
        return self._loader(TextDataset(split), batches, True, 8 * tokens // ranks[0])
