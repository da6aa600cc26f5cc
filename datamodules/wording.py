"""Numbers and names in sentences for the user."""

from collections.abc import Sequence


def quantity(count: int, noun: str) -> str:
    """`1 picture of one colour`, `2 pictures of one colour`: the first word is counted."""
    phrase, space, rest = noun.partition(" ")
    word = phrase.rstrip(",")
    comma = phrase[len(word) :]
    if count != 1:
        if word.endswith("y") and word[-2:-1] not in "aeiou":
            word = f"{word[:-1]}ies"
        else:
            word += "es" if word.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count:,} {word}{comma}{space}{rest}"


def printable(text: str) -> str:
    """The text with escapes for those bytes of file names that are not UTF-8: no output takes
    them.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def listing(names: Sequence[str], limit: int = 10) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
