"""Text: tokenizing, padding and training speed as ratios: `python -m benchmarks.text_speed`.

On the IMDB reviews below --root (default: the folder imdb in PROJECT_DATA). Everything on one
thread; what is compared takes turns within each round, and the medians count.

`--rows 10000000` measures instead how much memory a CSV file of that many short rows takes, from
the file to the last batch of an epoch, and how long the first start and one from the cache take.
"""

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from datamodules.data_check import check_data
from datamodules.imdb import IMDB
from datamodules.order import BucketBatchSampler, EpochBatchSampler, EpochIndices
from datamodules.packed_texts import TextDataset, TextSplit, padding_share
from datamodules.text_files import TextFiles
from datamodules.text_readers import Columns
from lightning_modules.networks.bilstm import BiLSTM
from preprocessing.text import TextTokenizer

ROUNDS = 5
NUM_TEXTS = 5_000
NUM_BATCHES = 6
BATCH_SIZE = 64
MAX_LENGTH = 2_500  # longer than any review: nothing is cut
# in the table of --rows, with frequencies by Zipf's law; a tenth of the texts also holds a number
# that no other does, so that there are as many different tokens as large text collections have
NUM_WORDS = 50_000

# torchtext 0.18's basic_english: replaced in this order, then split at white space
RULES = [
    *((r"\'", " '  "), (r"\"", ""), (r"\.", " . "), (r"<br \/>", " "), (r",", " , ")),
    *((r"\(", " ( "), (r"\)", " ) "), (r"\!", " ! "), (r"\?", " ? "), (r"\;", " "), (r"\:", " ")),
    (r"\s+", " "),
]
COMPILED = [(re.compile(pattern), replacement) for pattern, replacement in RULES]


def torchtext_tokens(text: str) -> list[str]:
    """As torchtext's Python tokenizer does it."""
    text = text.lower()
    for pattern, replacement in COMPILED:
        text = pattern.sub(replacement, text)
    return text.split()


def medians(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each job; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            gc.collect()
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_tokenizing(texts: Sequence[str], tokenizer: TextTokenizer) -> dict[str, float]:
    """MB/s from text to ids (torchtext: with and without its vocabulary's look-up)."""
    vocabulary = tokenizer.tokens()
    library = tokenizer.tokenizer

    def torchtext_ids() -> object:
        return [[vocabulary.get(t, 1) for t in torchtext_tokens(text)] for text in texts]

    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    seconds = medians(
        {
            "ours, ids": lambda: tokenizer.encode(texts),
            "torchtext's Python, tokens only": lambda: [torchtext_tokens(t) for t in texts],
            "torchtext's Python, ids": torchtext_ids,
            "tokenizers library, ids": lambda: library.encode_batch_fast(list(texts)),
        }
    )
    return {name: megabytes / value for name, value in seconds.items()}


def random_and_bucketed(split: TextSplit) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """One epoch of batches each."""
    random = EpochBatchSampler(len(split), BATCH_SIZE, seed=0)
    bucketed = BucketBatchSampler(split.lengths, BATCH_SIZE, seed=0)
    return [b.indices for b in random], [b.indices for b in bucketed]


def training_step(split: TextSplit, batches: Sequence[np.ndarray], network: nn.Module) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    for rows in batches:
        inputs, targets = TextDataset(split).__getitems__(EpochIndices(0, rows))
        loss = nn.functional.cross_entropy(network(*inputs.values()), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def measure_training(split: TextSplit, vocab_size: int) -> dict[str, float]:
    """Tokens a second that a BiLSTM trains on, padding not counted."""
    torch.manual_seed(0)
    network = BiLSTM(vocab_size, 2, embedding_dim=64, hidden_features=64)
    random, bucketed = random_and_bucketed(split)
    # spread evenly over the epoch's batches by their length, so that few stand for all
    bucketed.sort(key=lambda rows: int(split.lengths[rows].max()))
    step = len(bucketed) / NUM_BATCHES
    spread = [bucketed[int((i + 0.5) * step)] for i in range(NUM_BATCHES)]
    chosen = {"bucketed": spread, "random": random[:NUM_BATCHES]}
    seconds = medians(
        {
            name: lambda rows=rows: training_step(split, rows, network)  # type: ignore[misc]
            for name, rows in chosen.items()
        }
    )
    tokens = {n: sum(int(split.lengths[r].sum()) for r in rows) for n, rows in chosen.items()}
    return {name: tokens[name] / seconds[name] for name in chosen}


def table(title: str, values: dict[str, float], unit: str, base: str) -> None:
    print(f"\n{title}")
    for name, value in values.items():
        print(f"  {name:34} {value:12,.1f} {unit:10} {value / values[base]:6.2f} x")


def measure_speed(root: str) -> dict[str, dict[str, float]]:
    """Tokenizing, padding and training on the reviews."""
    data = IMDB(root, max_length=MAX_LENGTH)
    train = data.corpus.splits["train"]
    rows = data.find()["test"].rows(Columns())
    texts = [text for (text, *_), _ in zip(rows, range(NUM_TEXTS), strict=False)]
    tokenizing = measure_tokenizing(texts, TextTokenizer(data.corpus.definition))
    table("Tokenizing", tokenizing, "MB/s", "torchtext's Python, tokens only")
    random, bucketed = random_and_bucketed(train)
    padding = {
        "bucketed": padding_share(train.lengths, bucketed),
        "random": padding_share(train.lengths, random),
    }
    print(f"\nPadding in batches of {BATCH_SIZE}")
    for name, share in padding.items():
        print(f"  {name:34} {share:12.1%}")
    training = measure_training(train, data.corpus.vocab_size)
    table("Training a BiLSTM", training, "tokens/s", "random")
    return {"tokenizing MB/s": tokenizing, "padding": padding, "tokens/s": training}


def write_rows(path: Path, num_rows: int) -> int:
    """Fills a CSV file with texts of 8 to 12 words; returns their bytes as Python strings."""
    generator = np.random.default_rng(0)
    words = [f"word{i:x}" for i in range(NUM_WORDS)]
    frequencies = np.cumsum(1 / np.arange(1, NUM_WORDS + 1))
    num_bytes = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("text,label\n")
        for number in range(num_rows):
            if number % 10_000 == 0:
                points = generator.random((10_000, 12)) * frequencies[-1]
                places = np.searchsorted(frequencies, points).tolist()
            length = 8 + number % 5
            text = " ".join([words[place] for place in places[number % 10_000][:length]])
            text += f" {number}" if number % 10 == 0 else ""
            num_bytes += sys.getsizeof(text) + 8  # and a place in a list
            file.write(f"{text},class {number % 3}\n")
    return num_bytes


def peak_megabytes() -> float:
    """The most memory that this process has held, mapped files included (Linux tells it)."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3


def measure_start(table: str, cache: str) -> None:
    """Prints seconds to the first batch, peak memory until then and after an epoch, as JSON."""
    base = peak_megabytes()
    start = time.perf_counter()
    data = TextFiles(table, batch_size=256, cache_dir=cache)
    data.setup()
    check_data(data, "fast", None)
    print(data.findings[0].text)
    batches = iter(data.train_dataloader())
    next(batches)
    result = {
        "seconds to the first batch": time.perf_counter() - start,
        "MB of the imports alone": base,
        "MB up to the first batch": peak_megabytes(),
    }
    start = time.perf_counter()
    for _ in batches:
        pass
    peak = peak_megabytes()
    result |= {
        "seconds of an epoch of batches": time.perf_counter() - start,
        "MB up to the end of the epoch": peak,
        "MB for a million rows": (peak - base) / (sum(map(len, data.corpus.splits.values())) / 1e6),
    }
    print(json.dumps(result))


def measure_rows(num_rows: int) -> dict[str, dict[str, float]]:
    """Two starts, each in a process of its own."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        csv_file = Path(folder, "rows.csv")
        strings = write_rows(csv_file, num_rows) / 1e6
        size = csv_file.stat().st_size / 1e6
        print(f"{num_rows:,} rows, {size:,.0f} MB of CSV, {strings:,.0f} MB as Python strings")
        command = [sys.executable, "-m", "benchmarks.text_speed", "--start", str(csv_file), folder]
        for name in ("first start", "from the cache"):
            output = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            ).stdout
            results[name] = json.loads(output.splitlines()[-1])
            lines = [f"  {key:34} {value:12,.1f}" for key, value in results[name].items()]
            print(name, *lines, sep="\n")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.join(os.environ.get("PROJECT_DATA", ""), "imdb"))
    parser.add_argument("--rows", type=int, help="measure memory and starts with this many rows")
    parser.add_argument("--start", nargs=2, help=argparse.SUPPRESS)  # what --rows starts
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    if arguments.start:
        measure_start(*arguments.start)
        return
    result = measure_rows(arguments.rows) if arguments.rows else measure_speed(arguments.root)
    path = Path("build", "benchmarks", "text_rows.json" if arguments.rows else "text_speed.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
