"""What an export has found out about one format."""

from dataclasses import dataclass
from typing import Any

from exporters.verdict import Evidence, Verdict
from tasks.base import Comparison


@dataclass
class Outcome:
    """What is known about one format."""

    verdict: Verdict
    evidence: Evidence | None = None
    files: dict[str, dict[str, Any]] | None = None  # as hashed when written, the model first
    details: dict[str, Any] | None = None
    seconds: float | None = None
    latency: list[dict[str, Any]] | None = None
    memory_mb: float | None = None
    time_score: float | None = None
    test: dict[str, Any] | None = None  # scores on the test split
    log: str = ""


def restored(record: dict[str, Any]) -> Outcome:
    """An outcome as `proven.remember` was given it."""
    verdict, facts = Verdict(**record["verdict"]), record["evidence"]
    evidence = Evidence(**facts | {"compared": Comparison(**facts["compared"])})
    return Outcome(**record | {"verdict": verdict, "evidence": evidence})
