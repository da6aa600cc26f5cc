"""From files to arrays: splits, duplicates, labels, cache."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from datamodules.findings import texts
from datamodules.text_corpus import CorpusOptions, TextCorpus, load_corpus
from datamodules.text_layout import find_sources

Rows = list[tuple[str, str]]
TRAIN: Rows = [(f"{word} text {i}", word) for i in range(10) for word in ("good", "bad")]


def write(folder: Path, **splits: Rows) -> Path:
    folder.mkdir(exist_ok=True)
    for split, rows in splits.items():
        lines = [f"{text}\t{label}" for text, label in [("text", "label"), *rows]]
        (folder / f"{split}.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder


def load(folder: Path, cache: Path, **options: object) -> TextCorpus:
    sources = find_sources(folder, {})
    return load_corpus(sources, CorpusOptions(**options), cache)  # type: ignore[arg-type]


def words(corpus: TextCorpus, split: str) -> list[list[int]]:
    part = corpus.splits[split]
    offsets = part.offsets.tolist()
    return [part.ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


def sizes(corpus: TextCorpus) -> Mapping[str, int]:
    return {split: len(part) for split, part in corpus.splits.items()}


def test_given_splits_are_kept_and_only_train_makes_the_vocabulary(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "data", train=TRAIN, val=[("new good", "good")], test=[("bad text", "bad")]
    )
    corpus = load(folder, tmp_path)
    assert sizes(corpus) == {"train": 20, "val": 1, "test": 1}
    assert corpus.class_names == ["bad", "good"]
    assert corpus.splits["train"].targets.tolist() == [1, 0] * 10
    # text is the most frequent, then bad before good, new is unknown
    assert words(corpus, "val") == [[1, 4]]
    assert words(corpus, "test") == [[3, 2]]


def test_missing_splits_are_cut_from_train_by_seed(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", train=TRAIN)
    corpus = load(folder, tmp_path, val_fraction=0.2, test_fraction=0.3)
    assert sizes(corpus) == {"train": 10, "val": 4, "test": 6}
    for split in corpus.splits.values():
        assert split.targets.mean() == 0.5  # stratified
    other = load(folder, tmp_path, val_fraction=0.2, test_fraction=0.3, seed=1)
    assert corpus.fingerprint != other.fingerprint
    assert words(corpus, "test") != words(other, "test")


def test_only_what_leaks_leaves_train(tmp_path: Path) -> None:
    """The rest keeps its distribution, unless that is asked for."""
    repeated = [("good text 0", "good"), ("good  text 0 ", "good"), ("good text 4", "bad")]
    folder = write(
        tmp_path / "data",
        train=TRAIN + repeated,
        val=[("bad text 1", "bad")],
        test=[("bad text 2", "bad"), ("bad text 1", "bad")],
    )
    corpus = load(folder, tmp_path)
    assert sizes(corpus) == {"train": 21, "val": 1, "test": 2}
    assert texts(corpus.findings)[1:] == [
        "3 texts of train repeat another one (kept; --data.drop_repeats removes them)",
        "2 texts of train are also in val or test (removed from train)",
        "1 texts of val are also in test",
    ]
    kept = load(folder, tmp_path, keep_duplicates=True)
    assert sizes(kept) == {"train": 23, "val": 1, "test": 2}
    assert "2 texts of train are also in val or test (kept)" in texts(kept.findings)
    # which of two labels is right, nobody knows: both stay
    dropped = load(folder, tmp_path, drop_repeats=True)
    assert sizes(dropped) == {"train": 19, "val": 1, "test": 2}
    assert "2 texts of train repeat another one (removed)" in texts(dropped.findings)


@pytest.mark.parametrize("drop", [False, True])
def test_where_a_split_is_cut_equal_texts_go_to_the_same_side(tmp_path: Path, drop: bool) -> None:
    folder = write(tmp_path / "data", train=TRAIN * 3 + TRAIN[:6])
    options = {"test_fraction": 0.4, "drop_repeats": drop, "tokenizer": "bpe"}  # without <unk>
    corpus = load(folder, tmp_path, **options)
    texts = {name: [tuple(text) for text in words(corpus, name)] for name in corpus.splits}
    assert sum(map(len, texts.values())) == (20 if drop else 66)
    assert len(set().union(*texts.values())) == sum(len({*some}) for some in texts.values()) == 20
    if not drop:
        assert len(texts["test"]) == pytest.approx(0.4 * 66, abs=3)


def test_equal_texts_with_different_labels_are_listed(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", train=[*TRAIN, ("good text 3", "bad")])
    path = folder / "train.tsv"
    (note,) = (n for n in texts(load(folder, tmp_path).findings) if "labels" in n)
    assert note == f"1 equal texts have different labels: {path}:22 bad / {path}:8 good"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("1 2 3", ["1", "2", "3"]), ("10 9 -1", ["-1", "9", "10"]), ("b a 2", ["2", "a", "b"])],
)
def test_labels_are_names_whatever_numbers_they_are(
    tmp_path: Path, labels: str, expected: list[str]
) -> None:
    rows = [(f"text {i} {label}", label) for i in range(20) for label in labels.split()]
    corpus = load(write(tmp_path / "data", train=rows), tmp_path)
    assert corpus.class_names == expected


# how labels stand in the rows, the flag, the classes with their rows, and a part of the notes
SPELLINGS: dict[str, tuple[list[str], tuple[str, ...], dict[str, int], str]] = {
    "blanks": (["a", " a", "b", "b\xa0", "a"], (), {"a": 6, "b": 4}, "4 labels of train lost blan"),
    "blanks inside": (["a b", "a  b", "a\xa0b", "c"], (), {"a b": 6, "c": 2}, "'a  b' (2), 'a\\x"),
    "zero width": (
        ["a", "a\u200b", "\ufeffb", "b", "a\xad"], (), {"a": 6, "b": 4},
        "labels of train lost blanks or characters that cannot be seen: 'a\\u200b' (2), '\\ufeffb'",
    ),
    "Unicode forms": (["é", "e\u0301", "b"], (), {"b": 2, "é": 4}, "2 labels of train lost"),
    "case": (["Pos", "pos", "pos", "neg"], ("case",), {"neg": 2, "pos": 6}, "ed: 'Pos' → 'pos'"),
    "case, kept": (["Pos", "pos", "neg"], (), {"Pos": 2, "neg": 2, "pos": 2}, ""),
    "numbers": (["0", "0.0", "1", "1", "01"], ("number",), {"0": 4, "1": 6}, "joined: '0.0' → '0'"),
    "numbers, kept": (["0", "0.0", "1"], (), {"0": 2, "0.0": 2, "1": 2}, ""),
    "long numbers": (
        ["1" * 40 + "2", "1" * 40 + "3"], ("number",), {"1" * 40 + "2": 2, "1" * 40 + "3": 2}, ""
    ),
    "both": (["A", "a", "1e3", "1E3", "1000"], ("case", "number"), {"1000": 6, "A": 4}, "joined"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_labels_that_are_written_differently(tmp_path: Path, name: str) -> None:
    labels, join, expected, said = SPELLINGS[name]
    rows = [{"text": f"text {label!a} {i} {n}", "label": label}
            for i, label in enumerate(labels) for n in range(2)]  # fmt: skip
    folder = tmp_path / "data"
    folder.mkdir()
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    for split in ("train", "val", "test"):
        (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    corpus = load(folder, tmp_path, join_labels=join, keep_duplicates=True)
    targets = corpus.splits["train"].targets.tolist()
    assert {n: targets.count(i) for i, n in enumerate(corpus.class_names)} == expected
    assert not said or said in "\n".join(texts(corpus.findings))
    assert ("labels" in "\n".join(n for n in texts(corpus.findings) if "equal" not in n)) == bool(
        said
    )


def test_json_labels_of_several_types_are_said(tmp_path: Path) -> None:
    labels = [1, "1", 2, True, "x", 1.0] * 4
    rows = [json.dumps({"text": f"t {i}", "label": label}) for i, label in enumerate(labels)]
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    corpus = load(tmp_path / "t.jsonl", tmp_path)
    assert corpus.class_names == ["1", "1.0", "2", "True", "x"]
    assert texts(corpus.findings) == [
        "labels of train are 12 numbers and 8 texts and 4 true or false: the same if written alike"
    ]


def test_a_label_that_val_writes_differently(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", train=TRAIN, val=[("x", "Good")])
    with pytest.raises(ValueError, match="differs from 'good' only in case: --data.join_labels ca"):
        load(folder, tmp_path)
    corpus = load(folder, tmp_path, join_labels=("case",))
    assert corpus.class_names == ["bad", "good"]
    assert corpus.splits["val"].targets.tolist() == [1]


def test_a_class_may_be_missing_in_val(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", train=TRAIN, val=[("x", "good")], test=[("x", "good")])
    assert load(folder, tmp_path).splits["val"].targets.tolist() == [1]


FAULTS: dict[str, tuple[dict[str, Rows], str]] = {
    "a label that only val has": (
        {"train": TRAIN, "val": [("x", "good"), ("y", "odd"), ("z", "odd")]},
        r"val.tsv:3: label 'odd' does not occur in train \(2 such rows\); train has 'bad', 'good'",
    ),
    "a placeholder for labels": (
        {"train": TRAIN, "test": [("x", "-1"), ("y", "-1")]},
        r"test.tsv:2: label '-1' .*\(2 such rows\); no row has a label of train: what is not",
    ),
    "one class": ({"train": [("x", "a"), ("y", "a")]}, "train has one class only: 'a'"),
    "empty label": ({"train": [*TRAIN, ("x", "")]}, r"train.tsv:22: the label is empty"),
    "labels that are texts": (
        {"train": [(str(i), f"label {i}") for i in range(50)]},
        "train has 50 different labels in 50 rows, among them 'label 0'",
    ),
    "no rows": ({"train": []}, r"train.tsv: no rows"),
    "all texts empty": ({"train": [("", "a"), ("", "b")]}, r"train.tsv: all 2 texts are empty"),
    "nothing left": (
        {"train": TRAIN, "val": TRAIN},
        "no text is left in train: val and test hold them all",
    ),
    "too few for a split": ({"train": TRAIN[:2]}, "val would have no texts; change --data.val_fr"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_trained_on_is_refused_and_leaves_nothing(
    tmp_path: Path, fault: str
) -> None:
    splits, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "data", **splits), tmp_path)
    assert not [path for path in (tmp_path / "texts").iterdir() if path.is_dir()]


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").touch()
    with pytest.raises(ValueError, match=r"train.csv: no rows"):
        load(tmp_path / "train.csv", tmp_path)


def test_empty_and_long_texts_are_counted(tmp_path: Path) -> None:
    rows = [*((f"new {i}", "good") for i in range(20)), ("\u00a0", "good"), ("word " * 99, "bad")]
    corpus = load(write(tmp_path / "data", train=TRAIN, val=rows), tmp_path, max_length=5)
    assert "1 texts of val have no token and are read as <unk>" in texts(corpus.findings)
    assert "4.5% of the texts of val are cut to 5 tokens" in texts(corpus.findings)
    assert words(corpus, "val")[-2:] == [[1], [1] * 5]


def test_the_second_time_comes_from_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = write(tmp_path / "data", train=TRAIN)
    first = load(folder, tmp_path)
    assert "tokenizing 20 texts once" in capsys.readouterr().out
    moved = folder.rename(tmp_path / "moved")
    second = load(moved, tmp_path)
    assert capsys.readouterr().out == ""
    assert second.fingerprint == first.fingerprint
    assert words(second, "train") == words(first, "train")
    assert not list((tmp_path / "texts").rglob("*.spool"))
    with (moved / "train.tsv").open("a") as file:
        file.write("\nmore\tgood")
    os.utime(moved / "train.tsv", (0, 0))
    assert load(moved, tmp_path).fingerprint != first.fingerprint


def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    rows = [(" ".join(f"w{i * 400 + j}" for j in range(400)), "ab"[i % 2]) for i in range(220)]
    corpus = load(write(tmp_path / "data", train=rows), tmp_path, max_size=100_000)
    assert corpus.splits["train"].ids.dtype.name == "int32"
    assert int(corpus.splits["train"].ids.max()) == corpus.vocab_size - 1
    small = load(tmp_path / "data", tmp_path, max_size=100)
    assert small.splits["train"].ids.dtype.name == "uint16"
