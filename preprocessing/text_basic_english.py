"""torchtext's `basic_english`, vectorised: many texts become word ids by a few array operations.

The rules: lower-case; quotation marks and `<br />` vanish; each of '.,()!? is a token of its own;
white space, ; and : separate. The same rules as patterns for the `tokenizers` library stand in
text.py; this path exists because it is more than ten times faster than the library, which keeps
track of where each token came from.

The texts of a chunk are joined to one byte string; a table gives each byte a class, and changes of
class are the token borders. The first 16 bytes of a token are its key, two 64-bit numbers, looked
up in hash tables that hold each vocabulary entry's own key: the comparison is exact. Longer tokens,
which are few, go through a dictionary.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

# \x1c-\x1f separate for Python's str.split, though not for every regular expression library
TOKEN_PATTERN = r"[^\s\x1c-\x1f'.,()!?;:]+|['.,()!?]"
WIDE_SPACES = [c for c in map(chr, range(128, 0x3001)) if c.isspace()]
SEPARATOR = b"\x1e"  # between two texts; inside one it is white space
KEY_BYTES = 16
CHUNK_CHARACTERS = 1 << 17  # arrays of a chunk stay in the processor's cache
TABLE_BITS = 18

# classes: 0 separates, 1 belongs to a word, 2 is a token of its own
BYTE_CLASS = bytes(
    0 if chr(b).isspace() and b < 128 or chr(b) in ";:" else 2 if chr(b) in "'.,()!?" else 1
    for b in range(256)
)
# lower-case; NUL becomes a byte that UTF-8 never uses, as it would look like the end of a key
LOWER = b"\xff" + bytes(range(1, 256)).lower()
KEY_MASK = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


def basic_english_tokens(text: str) -> list[str]:
    """The tokens of one text, for counting; `WordEncoder` gives the ids of the same tokens."""
    return re.findall(TOKEN_PATTERN, text.lower().replace('"', "").replace("<br />", " "))


class WordEncoder:
    """Looks the basic_english tokens of texts up in a vocabulary.

    Args:
        vocabulary: Id of each token.
        unknown_id: Id of all other tokens.
    """

    def __init__(self, vocabulary: Mapping[str, int], unknown_id: int) -> None:
        words = [word.encode().translate(LOWER) for word in vocabulary]
        ids = np.fromiter(vocabulary.values(), np.int32, len(vocabulary))
        lengths = np.array([len(word) for word in words])
        low, high = token_keys(b"".join(words) + bytes(24), np.cumsum(lengths) - lengths, lengths)
        short = lengths <= KEY_BYTES
        # entry 0 has a key that no token has, and stands in the empty places of the tables
        self.low = np.concatenate([[np.uint64(0)], low[short]])
        self.high = np.concatenate([[np.uint64(0)], high[short]])
        self.ids = np.concatenate([[np.int32(unknown_id)], ids[short]])
        self.tables = build_tables(self.low, self.high)
        self.long = {words[i]: int(ids[i]) for i in np.flatnonzero(~short)}
        self.unknown_id = unknown_id

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids int32 [tokens] of all texts, and where each text begins, int64 [texts + 1]."""
        parts = [self._encode_chunk(chunk) for chunk in chunks(texts)]
        if not parts:
            return np.zeros(0, np.int32), np.zeros(1, np.int64)
        counts = np.concatenate([[0], *(part_counts for _, part_counts in parts)])
        return np.concatenate([ids for ids, _ in parts]), np.cumsum(counts)

    def _encode_chunk(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of a chunk's tokens and the number of tokens of each text."""
        data = joined_bytes(texts)
        kind = np.frombuffer(data.translate(BYTE_CLASS), np.uint8)
        in_word = kind & 1
        # a token starts where a byte is not a separator and does not continue a word
        starts = np.flatnonzero(kind[1:] > in_word[:-1]) + 1
        ends = np.flatnonzero(kind[:-1] > in_word[1:]) + 1
        ids = self._look_up(data, starts, ends - starts)
        borders = np.flatnonzero(np.frombuffer(data, np.uint8) == SEPARATOR[0])
        return ids, np.diff(np.searchsorted(starts, borders))

    def _look_up(self, data: bytes, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Id of each token; int32 [tokens]."""
        low, high = token_keys(data, starts, lengths)
        place = hash_keys(low, high)
        entry = self.tables[0][place]
        missing = np.flatnonzero((self.low[entry] != low) | (self.high[entry] != high))
        for table in self.tables[1:]:
            found = table[place[missing]]
            entry[missing] = found
            differs = (self.low[found] != low[missing]) | (self.high[found] != high[missing])
            missing = missing[differs]
        entry[missing] = 0
        ids = self.ids[entry]
        for i in np.flatnonzero(lengths > KEY_BYTES):
            token = data[starts[i] : starts[i] + lengths[i]]
            ids[i] = self.long.get(token, self.unknown_id)
        return ids


def chunks(texts: Iterable[str], characters: int = CHUNK_CHARACTERS) -> Iterator[list[str]]:
    """Groups texts; a group ends where it has that many characters."""
    some, size = [], 0
    for text in texts:
        some.append(text)
        size += len(text) + 1
        if size >= characters:
            yield some
            some, size = [], 0
    if some:
        yield some


def joined_bytes(texts: Sequence[str]) -> bytes:
    """Normalised UTF-8 of texts: a separator before each and after the last, then zeros."""
    parts = [t.encode() if t.isascii() else normalised_unicode(t).encode() for t in texts]
    joined = SEPARATOR.join(parts)
    if joined.count(SEPARATOR) != len(parts) - 1:
        joined = SEPARATOR.join([part.replace(SEPARATOR, b" ") for part in parts])
    clean = joined.translate(LOWER, delete=b'"').replace(b"<br />", b" ")
    return SEPARATOR + clean + SEPARATOR + b" " * 24  # keys read past the last token


def normalised_unicode(text: str) -> str:
    """Lower-case (as Python does it: final sigma included), white space as plain spaces."""
    text = text.lower().encode("utf-8", "replace").decode()
    for space in WIDE_SPACES:
        if space in text:
            text = text.replace(space, " ")
    return text


def token_keys(
    data: bytes, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes 0-7 and 8-15 of each token as numbers, zero beyond its end; uint64 [tokens] twice.

    `data` must go on for 16 bytes after the last token.
    """
    # the eight bytes from every position on, without a copy
    words = np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))
    low = words[starts] & KEY_MASK[np.minimum(lengths, 8)]
    high = np.zeros_like(low)
    long = np.flatnonzero(lengths > 8)
    high[long] = words[starts[long] + 8] & KEY_MASK[np.minimum(lengths[long] - 8, 8)]
    return low, high


def hash_keys(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A place in a table for each key; int64 [tokens]."""
    mixed: np.ndarray = low * np.uint64(0x9E3779B97F4A7C15) + high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xC2B2AE3D27D4EB4F)
    return (mixed >> np.uint64(64 - TABLE_BITS)).astype(np.int64)


def build_tables(low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    """Hash tables of entry numbers (0 is empty); what finds its place taken goes into the next."""
    place = hash_keys(low, high)
    left = np.arange(len(low) - 1, 0, -1)  # of two, the earlier (more frequent) one is written last
    tables: list[np.ndarray] = []
    while len(left) or not tables:
        table = np.zeros(1 << TABLE_BITS, np.int32)
        table[place[left]] = left
        tables.append(table)
        left = left[table[place[left]] != left]
    return tables
