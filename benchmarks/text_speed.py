"""Text: tokenizing, padding and training speed as ratios: `python -m benchmarks.text_speed`.

On the IMDB reviews below --root (default: the folder imdb in PROJECT_DATA). Everything on one
thread; what is compared takes turns within each round, and the medians count.
"""

import argparse
import gc
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from datamodules.bucket_sampler import BucketBatchSampler, padding_share
from datamodules.imdb import IMDB
from datamodules.packed_texts import TextDataset, TextSplit
from datamodules.samplers import EpochBatchSampler, EpochIndices
from datamodules.text_readers import Columns
from lightning_modules.networks.bilstm import BiLSTM
from preprocessing.text import TextTokenizer

ROUNDS = 5
NUM_TEXTS = 5_000
NUM_BATCHES = 6
BATCH_SIZE = 64
MAX_LENGTH = 2_500  # longer than any review: nothing is cut

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
        (tokens, lengths), targets = TextDataset(split).__getitems__(EpochIndices(0, rows))
        loss = nn.functional.cross_entropy(network(tokens, lengths), targets)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.join(os.environ.get("PROJECT_DATA", ""), "imdb"))
    root = parser.parse_args().root
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
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
    path = Path("build") / "benchmarks" / "text_speed.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"tokenizing MB/s": tokenizing, "padding": padding, "tokens/s": training}
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
