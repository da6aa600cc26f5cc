"""Our tokenizer, vocabulary and batches against torchtext itself: `make torchtext ARGS=FILE`.

Runs in an environment of its own (torchtext_requirements.txt), since torchtext is archived and
newer torch versions cannot load its last binary (pytorch/text issue 2272). FILE is any UTF-8 text
file; a line is a text. torchtext 0.18 no longer has BucketIterator; its rule (shuffled pools of 100
batches, each sorted by length) is repeated here.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torchtext

torchtext.disable_torchtext_deprecation_warning()  # before its modules, which give it

from torchtext.data.utils import get_tokenizer  # noqa: E402
from torchtext.vocab import build_vocab_from_iterator  # noqa: E402

from datamodules.order import BucketBatchSampler  # noqa: E402
from datamodules.packed_texts import padding_share  # noqa: E402
from datamodules.text_vocabulary import make_tokenizer  # noqa: E402
from preprocessing.text import TextTokenizer  # noqa: E402

BATCH_SIZE = 64
POOL = 100 * BATCH_SIZE
MAX_SIZE = 25_000


def bucket_iterator_batches(lengths: np.ndarray, seed: int) -> list[np.ndarray]:
    """As torchtext.legacy's BucketIterator groups texts."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + BATCH_SIZE] for i in range(0, len(pool), BATCH_SIZE)]
    return batches


def main(path: str) -> int:
    """Returns the number of differences."""
    texts = [line for line in Path(path).read_text(encoding="utf-8").split("\n") if line.strip()]
    tokenize = get_tokenizer("basic_english")
    vocabulary = build_vocab_from_iterator(
        map(tokenize, texts), specials=["<pad>", "<unk>"], max_tokens=MAX_SIZE + 2
    )
    vocabulary.set_default_index(1)
    start = time.perf_counter()
    expected = [vocabulary(tokenize(text)) for text in texts]
    torchtext_seconds = time.perf_counter() - start

    ours = TextTokenizer(make_tokenizer("basic_english", texts, MAX_SIZE))
    start = time.perf_counter()
    packed = ours.encode(texts)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "vocab.txt"
        saved.write_text("\n".join(vocabulary.get_itos()) + "\n", encoding="utf-8")
        given = TextTokenizer(make_tokenizer("basic_english", [], vocab=saved))
    again = given.encode(texts)
    rows = zip(packed.offsets[:-1].tolist(), packed.offsets[1:].tolist(), expected, strict=True)
    tokens = ours.tokens()
    differences = {
        "texts with other ids": sum(packed.ids[a:b].tolist() != (ids or [1]) for a, b, ids in rows),
        "vocabulary entries": sum(
            tokens.get(token) != i for i, token in enumerate(vocabulary.get_itos())
        ),
        "ids by torchtext's saved vocabulary": int((again.ids != packed.ids).sum()),
    }
    print(f"{len(texts)} texts, {len(vocabulary)} tokens in torchtext's vocabulary")
    for name, count in differences.items():
        print(f"{name:40} {count} differ")
    lengths = np.diff(packed.offsets)
    batches = [batch.indices for batch in BucketBatchSampler(lengths, BATCH_SIZE, seed=0)]
    theirs = padding_share(lengths, bucket_iterator_batches(lengths, seed=0))
    print(f"{'padding, ours':40} {padding_share(lengths, batches):.2%}")
    print(f"{'padding, BucketIterator':40} {theirs:.2%}")
    print(f"{'tokenizing with ids':40} {torchtext_seconds / seconds:.1f} x torchtext's speed")
    return sum(differences.values())


if __name__ == "__main__":
    try:
        sys.exit(1 if main(sys.argv[1]) else 0)
    except UnicodeDecodeError as error:
        sys.exit(f"{sys.argv[1]} is not UTF-8: {error}")
