"""From source files to token ids on disk: read, checked for duplicates, split, tokenized once.

The result is a folder of flat arrays in the cache, named by a fingerprint of the files' content and
of every setting that acts on it, and is memory-mapped: a second run starts in seconds.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from datamodules.cache_folder import build_once
from datamodules.findings import Finding, warning
from datamodules.packed_texts import TextSplit
from datamodules.splits import (
    SPLITS,
    conflicting_pairs,
    found_among,
    repeats,
    stratified_split,
)
from datamodules.text_columns import Columns
from datamodules.text_labels import make_classes
from datamodules.text_raw import RawTexts, read_raw
from datamodules.text_readers import TextSource
from datamodules.text_vocabulary import make_tokenizer
from preprocessing.text import TextTokenizer
from preprocessing.text_basic_english import chunks

CACHE_FORMAT = 2  # raise it whenever the arrays or what they hold change
NUM_SHOWN = 5
CHARACTERS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class CorpusOptions:
    """What acts on the arrays besides the files."""

    columns: Columns = Columns()
    tokenizer: str = "auto"
    vocab: str | None = None
    max_size: int = 25_000
    min_frequency: int = 1
    max_length: int = 400
    val_fraction: float = 0.1
    test_fraction: float = 0.1
    keep_duplicates: bool = False
    drop_repeats: bool = False
    join_labels: tuple[str, ...] = ()
    seed: int = 0
    class_names: dict[str, str] = field(default_factory=dict)  # names for labels as they stand


@dataclass(frozen=True)
class TextCorpus:
    """A tokenized data set."""

    class_names: list[str]
    splits: dict[str, TextSplit]
    definition: str  # the tokenizer.json
    vocab_size: int
    fingerprint: str
    findings: list[Finding]


def load_corpus(
    sources: Mapping[str, TextSource], options: CorpusOptions, cache: Path
) -> TextCorpus:
    """Opens the corpus in the cache, having built it where it is not there yet."""
    sources = {split: sources[split] for split in SPLITS if split in sources}
    fingerprint = corpus_fingerprint(sources, options)
    folder = build_once(
        cache / "texts" / fingerprint[:32], lambda target: build_corpus(target, sources, options)
    )
    about = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    splits = {split: TextSplit(folder, split) for split in SPLITS}
    definition = (folder / "tokenizer.json").read_text(encoding="utf-8")
    findings = [*map(warning, about.pop("notes"))]
    return TextCorpus(
        splits=splits, definition=definition, fingerprint=fingerprint, findings=findings, **about
    )


def corpus_fingerprint(sources: Mapping[str, TextSource], options: CorpusOptions) -> str:
    """SHA-256 of settings and of the content of all files; where they lie does not matter."""
    settings = asdict(options) | {"vocab": None, "tokenizer": None}
    digest = hashlib.sha256(json.dumps([CACHE_FORMAT, settings]).encode())
    for split in SPLITS:
        source = sources.get(split)
        for number, path in enumerate(source.files if source else ()):
            label = source.labels[number] if source and source.labels else None
            digest.update(json.dumps([split, path.name, label]).encode() + file_digest(path))
    for name in (options.tokenizer, options.vocab or ""):
        digest.update(file_digest(Path(name)) if Path(name).is_file() else name.encode())
    return digest.hexdigest()


def file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def build_corpus(folder: Path, sources: Mapping[str, TextSource], options: CorpusOptions) -> None:
    """Reads, splits and tokenizes; fills `folder`."""
    raw = {
        split: read_raw(source, options.columns, folder / f"{split}.spool")
        for split, source in sources.items()
    }
    print(f"tokenizing {sum(map(len, raw.values())):,} texts once, into the cache …", flush=True)
    labels, targets, notes = make_classes(raw, options.join_labels)
    notes += conflict_notes(raw, targets, labels)
    parts, duplicates = choose_rows(raw, targets["train"], options)
    train, train_rows = parts["train"]
    definition = make_tokenizer(
        options.tokenizer,
        train.texts(train_rows),
        options.max_size,
        options.min_frequency,
        Path(options.vocab) if options.vocab else None,
    )
    (folder / "tokenizer.json").write_text(definition, encoding="utf-8")
    tokenizer = TextTokenizer(definition)
    notes += duplicates
    for split, (part, rows) in parts.items():
        notes += write_split(folder, split, part, rows, tokenizer, options.max_length)
        origin = "train" if part is train else split
        write_array(folder, split, "targets", targets[origin][rows])
    about = {
        "class_names": [options.class_names.get(label, label) for label in labels],
        "vocab_size": tokenizer.vocab_size,
        "notes": notes,
    }
    (folder / "corpus.json").write_text(json.dumps(about), encoding="utf-8")
    for spool in folder.glob("*.spool"):
        spool.unlink()


def conflict_notes(
    raw: Mapping[str, RawTexts], targets: Mapping[str, np.ndarray], labels: list[str]
) -> list[str]:
    """Lists texts that come with different labels."""
    hashes = joined([part.hashes for part in raw.values()])
    every_target = joined(list(targets.values()))
    conflicts = conflicting_pairs(hashes, every_target)
    if not len(conflicts):
        return []
    sizes = np.cumsum([0, *map(len, raw.values())])
    parts = list(raw.values())

    def describe(row: int) -> str:
        split = int(np.searchsorted(sizes, row, side="right")) - 1
        return f"{parts[split].location(row - sizes[split])} {labels[every_target[row]]}"

    shown = [f"{describe(first)} / {describe(second)}" for first, second in conflicts[:NUM_SHOWN]]
    return [f"{len(conflicts)} equal texts have different labels: {'; '.join(shown)}"]


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """One array; no copy where it is one already."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def choose_rows(
    raw: Mapping[str, RawTexts], targets: np.ndarray, options: CorpusOptions
) -> tuple[dict[str, tuple[RawTexts, np.ndarray]], list[str]]:
    """Rows of each split: train without what leaks, and val and test cut from it where not given.

    Args:
        raw: The splits as they were given.
        targets: Classes of train's rows.
        options: Fractions, seed and which duplicates stay.
    """
    train = raw["train"]
    given = {split: part for split, part in raw.items() if split != "train"}
    repeated = repeats(train.hashes, targets if options.drop_repeats else None)
    evaluated = np.concatenate([np.zeros(0, "S16"), *(part.hashes for part in given.values())])
    leaked = found_among(train.hashes, evaluated)
    notes = []
    if repeated.any():
        fate = "removed" if options.drop_repeats else "kept; --data.drop_repeats removes them"
        notes.append(f"{repeated.sum()} texts of train repeat another one ({fate})")
    if leaked.any():
        fate = "kept" if options.keep_duplicates else "removed from train"
        notes.append(f"{leaked.sum()} texts of train are also in {' or '.join(given)} ({fate})")
    if len(given) == 2:
        shared = int(found_among(given["val"].hashes, given["test"].hashes).sum())
        notes += [f"{shared} texts of val are also in test"] if shared else []
    dropped = repeated if options.drop_repeats else np.zeros(len(train), bool)
    rows = np.flatnonzero(~dropped if options.keep_duplicates else ~dropped & ~leaked)
    if not len(rows):
        raise ValueError("no text is left in train: val and test hold them all")
    fractions = {"val": options.val_fraction, "test": options.test_fraction}
    wanted = {split: fractions[split] for split in ("val", "test") if split not in given}
    shares = [*wanted.values(), 1 - sum(wanted.values())]
    groups = train.hashes[rows] if repeated.any() else None  # equal texts go to the same side
    *cut, rest = stratified_split(targets[rows], shares, options.seed, groups)
    parts = {"train": (train, rows[rest])}
    parts |= {split: (train, rows[chosen]) for split, chosen in zip(wanted, cut, strict=True)}
    parts |= {split: (part, np.arange(len(part))) for split, part in given.items()}
    for split, (_, chosen) in parts.items():
        if not len(chosen):
            raise ValueError(f"{split} would have no texts; change --data.{split}_fraction")
    return {split: parts[split] for split in SPLITS}, notes


def write_split(
    folder: Path,
    split: str,
    part: RawTexts,
    rows: np.ndarray,
    tokenizer: TextTokenizer,
    max_length: int,
) -> list[str]:
    """Tokenizes the rows of a split into its arrays; returns what the user should know."""
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32
    lengths, num_empty, num_truncated = [np.zeros(1, np.int32)], 0, 0
    with (folder / f"{split}_ids.{np.dtype(dtype).name}").open("wb") as file:
        for some in chunks(part.texts(rows), CHARACTERS_AT_ONCE):
            packed = tokenizer.encode(some, max_length)
            packed.ids.astype(dtype).tofile(file)
            lengths.append(np.diff(packed.offsets).astype(np.int32))
            num_empty += packed.num_empty
            num_truncated += packed.num_truncated
    write_array(folder, split, "offsets", np.cumsum(np.concatenate(lengths), dtype=np.int64))
    notes = []
    if num_empty:
        notes.append(f"{num_empty} texts of {split} have no token and are read as <unk>")
    if num_truncated:
        share = num_truncated / len(rows)
        notes.append(f"{share:.1%} of the texts of {split} are cut to {max_length} tokens")
    return notes


def write_array(folder: Path, split: str, name: str, values: np.ndarray) -> None:
    with (folder / f"{split}_{name}.{values.dtype.name}").open("wb") as file:
        values.tofile(file)
