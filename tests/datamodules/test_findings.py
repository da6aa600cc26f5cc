"""Sentences with a severity."""

from datamodules.findings import error, note, texts, warning


def test_findings_are_chosen_by_severity_in_their_order() -> None:
    found = [note("a"), warning("b").within("val"), error("caf\udce9"), note("c")]
    assert texts(found) == ["a", "val: b", "caf\\udce9", "c"]
    assert texts(found, "note") == ["a", "c"]
    assert texts(found, "error", "warning") == ["val: b", "caf\\udce9"]
