"""What is noticed about data: one sentence for the user, and how serious it is."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

from datamodules.wording import printable

Severity = Literal["error", "warning", "note"]
ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """An error makes a run worthless and stops it, a warning asks for a look; a note is said when
    training starts."""

    severity: Severity
    text: str

    def within(self, place: str) -> Self:
        """The same, said of a part such as a split."""
        return replace(self, text=f"{place}: {self.text}")


def note(text: str) -> Finding:
    return Finding("note", text)


def warning(text: str) -> Finding:
    return Finding("warning", text)


def error(text: str) -> Finding:
    return Finding("error", text)


def texts(findings: Iterable[Finding], *severities: Severity) -> list[str]:
    """What can be printed of findings, by default of all."""
    chosen = (found for found in findings if found.severity in (severities or ORDER))
    return [printable(found.text) for found in chosen]
