"""Data as it lies in real life: odd but honest layouts, which train, or end in one message."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.bad_case import Case
from benchmarks.bad_images import encoded, picture, save_tree
from benchmarks.bad_texts import BODY, HEADED, NETWORK, ROWS

Prepare = Callable[[Path], object]
IMAGES = ("--data", "image_folder", "--data.root", "tree", "--fast_dev_run")
TEXTS = ("--data", "text_files", "--data.root", "t", *NETWORK)


def some_pictures(folder: Path, count: int = 8) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(encoded(picture(number + 50), "PNG"))


def in_train(folder: Path, more: Prepare = lambda tree: None) -> None:
    """`tree/train/<class>/…`, and more beside it."""
    save_tree(folder, ("train/a", "train/b"))
    more(folder / "tree")


def deep(folder: Path, mode: str, low: int, high: int) -> None:
    """Grey pictures of more than 8 bits."""
    for place, name in enumerate("ab"):
        (folder / "tree" / name).mkdir(parents=True)
        for number in range(8):
            random = np.random.default_rng(10 * place + number)
            values = random.integers(low, high, (12, 12)).astype(
                {"I;16": np.uint16, "I": np.int32}[mode]
            )
            Image.fromarray(values).save(folder / "tree" / name / f"{number}.tif")


def white_on_nothing(folder: Path) -> None:
    for place, name in enumerate("ab"):
        (folder / "tree" / name).mkdir(parents=True)
        for number in range(8):
            alpha = np.random.default_rng(10 * place + number).integers(0, 256, (12, 12), np.uint8)
            white = np.full((12, 12, 3), 255, np.uint8)
            image = Image.fromarray(np.dstack([white, alpha]), "RGBA")
            image.save(folder / "tree" / name / f"{number}.png")


def folders_of_pictures() -> Iterator[tuple[str, Prepare, bool, tuple[str, ...]]]:
    """Name, how to make it, whether it must be refused, further arguments."""
    for name in ("test", "val"):
        more = partial(lambda tree, name: some_pictures(tree / name), name=name)
        yield f"flat {name}", partial(in_train, more=more), False, ()
        more = partial(lambda tree, name: (tree / name).mkdir(), name=name)
        yield f"empty {name}", partial(in_train, more=more), False, ()
    two = partial(save_tree, names=("train/a", "train/b", "val/a", "valid/a"))
    yield "val and valid", two, True, ()
    other = partial(in_train, more=lambda t: some_pictures(t / "extra" / "a"))
    yield "another folder beside train", other, False, ()
    yield "a class called train", partial(save_tree, names=("train", "bus")), False, ()
    none = ("--data.splits", "none")
    yield "a class called train, said", partial(save_tree, names=("train", "bus")), False, none
    for hidden in (".ipynb_checkpoints", "__MACOSX", ".cache/deep"):
        more = partial(
            lambda tree, hidden: some_pictures(tree / "train" / "a" / hidden), hidden=hidden
        )
        yield f"hidden {hidden}", partial(in_train, more=more), False, ()
    yield "12 bits of 16", partial(deep, mode="I;16", low=0, high=4096), False, ()
    yield "32 bits", partial(deep, mode="I", low=-5, high=3_000_000), False, ()
    yield "white on nothing", white_on_nothing, True, ()
    for value in ("3", "[9,9]", "[5,1]", "x"):
        yield f"--data.levels {value}", save_tree, True, (f"--data.levels={value}",)
    sizes = ("--data.resize=exact", "--data.image_size=8", "--data.resize_to=20")
    yield "resize_to with exact", save_tree, True, sizes
    yield "--data.splits x", save_tree, True, ("--data.splits", "x")
    yield "--data.timeout 0", save_tree, True, ("--data.timeout", "0")
    yield "--data.on_timeout never", save_tree, True, ("--data.on_timeout", "never")


def files(**contents: str | bytes) -> Prepare:
    """`t/<name>.<ending>` of name__ending = content."""

    def prepare(folder: Path) -> None:
        (folder / "t").mkdir()
        for name, content in contents.items():
            path = folder / "t" / name.replace("__", ".")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return prepare


def in_labels(change: Callable[[int, str], object]) -> str:
    """JSON lines whose labels are changed."""
    rows = [{"text": text, "label": change(n, label)} for n, (text, label) in enumerate(ROWS)]
    return "\n".join(map(json.dumps, rows))


def tables_of_texts() -> Iterator[tuple[str, Prepare, bool, tuple[str, ...]]]:
    places = ("--data.label_column=0", "--data.text_columns=1")
    sms = "v1,v2,,,\n" + "".join(f"{label},caf\xe9 {text},,,\n" for text, label in ROWS)
    latin = ("--data.encoding=latin-1", *places)
    yield "names v1, v2 and Latin-1", files(train__csv=sms.encode("latin-1")), False, latin
    excel = HEADED.replace(",", ";").encode("utf-8-sig")
    yield "Excel", files(train__csv=excel), False, ()
    comma = ("--data.separator", ",")
    yield "another separator than asked for", files(train__csv=excel), True, comma
    yield "a separator of two", files(train__csv=excel), True, ("--data.separator", ";;")
    numbers = "".join(f"{text}\t{n % 2}\n" for n, (text, _) in enumerate(ROWS))
    by_place = ("--data.text_columns=0", "--data.label_column=1")
    yield "no names, first label 0", files(train__tsv=numbers), False, by_place
    yield "one name in place of a list", files(train__csv=HEADED), False, (
        "--data.text_columns", "text", "--data.label_column", "label")  # fmt: skip
    yield "a place that is not there", files(train__csv=HEADED), True, ("--data.label_column=9",)
    for title, change in {
        "a list": lambda n, label: [label], "an object": lambda n, label: {"is": label},
        "NaN": lambda n, label: float("nan"),
    }.items():  # fmt: skip
        yield f"{title} as label", files(train__jsonl=in_labels(change)), True, ()
    for title, change in {
        "zero width": lambda n, label: label + "\u200b" * (n % 3 == 0),
        "case": lambda n, label: label.upper() if n % 3 == 0 else label,
        "0 and 0.0": lambda n, label: [0, "0.0", 1, "1"][n % 4],
        "a|b": lambda n, label: "a|b" if n % 5 == 0 else label,
    }.items():  # fmt: skip
        yield f"labels with {title}", files(train__jsonl=in_labels(change)), False, ()
    join = ("--data.join_labels", "case")
    upper = in_labels(lambda n, label: label.upper() if n % 3 == 0 else label)
    yield "labels joined", files(train__jsonl=upper), False, join
    unlabelled = "text\n" + "\n".join(text for text, _ in ROWS)
    yield "a test without labels", files(train__csv=HEADED, test__csv=unlabelled), False, ()
    yield "test alone", files(test__csv=HEADED), True, ()
    yield "val and valid", files(train__csv=HEADED, val__csv=HEADED, valid__csv=HEADED), True, ()
    yield "a README beside", files(train__csv=HEADED, README__md="what this is"), False, ()
    yield (
        "no names and repeats",
        files(train__csv=BODY * 2),
        False,
        (*("--data.text_columns=0", "--data.label_column=1", "--data.drop_repeats", "true"),),
    )


def layout_cases() -> Iterator[Case]:
    for base, source in ((IMAGES, folders_of_pictures), (TEXTS, tables_of_texts)):
        for name, prepare, refused, extra in source():
            title = f"{base[1]}: {name}"
            yield Case("layouts", title, "train", (*base, *extra), prepare, refused, not refused)
