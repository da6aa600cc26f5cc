"""What the data check looks for in texts: words without an id, classes that a split lacks, and
traces of a wrong encoding."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from datamodules.findings import Finding, error, warning
from datamodules.text_corpus import TextCorpus
from datamodules.wording import listing
from preprocessing.text import TextTokenizer

LARGEST_UNKNOWN_SHARE = 0.1
FAST_BLOCKS, BLOCK = 16, 1 << 16  # tokens of a split that are counted in a fast check
TRACES = {  # of a wrong encoding
    "replacement characters (U+FFFD)": re.compile("\ufffd"),
    "control characters": re.compile("[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"),
}


def look_at_tokens(corpus: TextCorpus, full: bool) -> Iterator[Finding]:
    """Classes and words that are missing; unless `full`, words among some blocks of each split."""
    unknown = TextTokenizer(corpus.definition).empty_id
    for name, split in corpus.splits.items():
        missing = np.setdiff1d(np.arange(len(corpus.class_names)), split.targets)
        if len(missing):
            listed = listing([corpus.class_names[label] for label in missing], 5)
            yield warning(f"{name} has no texts of {listed}")
        share = share_of(unknown, split.ids, full) if unknown else 0.0
        if share == 1 and name == "train":
            yield error("no word of train is in the vocabulary: all are read as <unk>")
        elif share > LARGEST_UNKNOWN_SHARE:
            yield warning(f"{name}: {share:.0%} of the words are <unk>")


def share_of(token: int, ids: np.ndarray, full: bool) -> float:
    """Share of a token among all ids, or among blocks spread over them."""
    starts = np.arange(0, len(ids), BLOCK)
    if not full and len(starts) > FAST_BLOCKS:
        starts = starts[:: len(starts) // FAST_BLOCKS]
    blocks = [ids[start : start + BLOCK] for start in starts]
    return sum(int((b == token).sum()) for b in blocks) / max(sum(map(len, blocks)), 1)


def wrongly_decoded(texts: Iterable[str]) -> dict[str, list[str]]:
    """Counts texts that were; returns "errors" and "warnings"."""
    counts = Counter(what for text in texts for what, s in TRACES.items() if s.search(text))
    warnings = [f"{n} texts hold {what}: look at the encoding" for what, n in counts.items()]
    return {"errors": [], "warnings": warnings}
