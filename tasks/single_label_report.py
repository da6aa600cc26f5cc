"""What people read of single-label results: tables, values and sentences.

Where there are very many classes, the worst of them and what is most often confused stand for all.

M samples, K classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.base import Table
from tasks.outcomes import Report
from tasks.single_label_outcomes import Outcomes

MAX_TABLE_CLASSES = 50
MAX_MATRIX_CLASSES = 100  # as numbers
MAX_DRAWN_CLASSES = 1000  # as a picture
MAX_LISTED_CLASSES = 1000  # in test.json
MAX_LISTED_PAIRS = 50
MAX_LOGGED_PAIRS = 1000
MAX_PRINTED_PAIRS = 10
MAX_CARD_CLASSES = 50  # more are left out of the text; the manifest has all
MAX_COMPARED_CLASSES = 10
FEW_SAMPLES = 20
IN_TABLE = ("precision", "recall", "f1")
# how a program of one's own gets from the logits of one sample to its class
PYTHON = 'print(manifest["class_names"][logits[0].argmax()])'
CPP = r'std::cout << std::max_element(logits, logits + {}) - logits << "\n";  // the class'
LIBTORCH = r'std::cout << logits.argmax(1).item<int64_t>() << "\n";  // the class'


# ---- an epoch -----------------------------------------------------------------------------


def report_values(report: Report, class_names: Sequence[str]) -> dict[str, Any]:
    """The report as plain values."""
    outcomes, num_classes = report.outcomes, len(class_names)
    shown = lowest_f1(outcomes, MAX_LISTED_CLASSES)
    figures = outcomes.class_figures()
    values = {
        "num_samples": outcomes.num_samples,
        **report.scalars,
        "num_classes": num_classes,
        "classes": [
            {"name": class_names[i], **dict(zip((*IN_TABLE, "support"), figures[i], strict=True))}
            for i in shown
        ],
        "most_confused": [
            {"true": class_names[t], "predicted": class_names[p], "samples": n}
            for t, p, n in outcomes.confused(MAX_LISTED_PAIRS)
        ],
    }
    if num_classes <= MAX_MATRIX_CLASSES:
        values["confusion_matrix"] = outcomes.confusion().tolist()
    return values


def lowest_f1(outcomes: Outcomes, limit: int) -> np.ndarray:
    """int64, all classes in their order, or the worst ones where there are more than that."""
    if outcomes.num_classes <= limit:
        return np.arange(outcomes.num_classes)
    occurs = np.flatnonzero(outcomes.support)  # of others nothing is known
    return occurs[np.argsort(outcomes.f1[occurs], kind="stable")[:limit]]


def table(report: Report, class_names: Sequence[str]) -> Table:
    """A row a class (the worst ones where there are very many), then the totals."""
    outcomes = report.outcomes
    shown = lowest_f1(outcomes, MAX_TABLE_CLASSES)
    figures = outcomes.class_figures()
    is_part = len(shown) < len(class_names)
    macro = (f"{report.scalars[name]:.4f}" for name in IN_TABLE)
    confused = outcomes.confused(MAX_PRINTED_PAIRS)
    return Table(
        ["class", "precision", "recall", "F1", "samples"],
        [
            [class_names[i], *(f"{value:.4f}" for value in figures[i][:3]), str(figures[i][3])]
            for i in shown
        ],
        ["macro mean", *macro, str(outcomes.num_samples)],
        f"the {len(shown)} classes with the lowest F1" if is_part else "",
        IN_TABLE,
        [  # instead of the picture
            f"confused: {class_names[true]} taken for {class_names[predicted]}, {count} x"
            for true, predicted, count in confused * (len(class_names) > MAX_DRAWN_CLASSES)
        ],
    )


def confusion_table(outcomes: Outcomes, class_names: Sequence[str]) -> Table:
    """The confusion matrix; of many classes only the most frequent mistakes."""
    if len(class_names) > MAX_MATRIX_CLASSES:
        pairs = outcomes.confused(MAX_LOGGED_PAIRS)
        rows: list[list[Any]] = [[class_names[t], class_names[p], n] for t, p, n in pairs]
        return Table(["true class", "predicted class", "samples"], rows)
    counts = zip(class_names, outcomes.confusion().tolist(), strict=True)
    return Table(["true class", *class_names], [[name, *row] for name, row in counts])


# ---- a bundle -----------------------------------------------------------------------------


def class_scores(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Precision, recall, F1 and samples of each class; what has no samples scores 0."""
    names = (*IN_TABLE, "samples")
    return [dict(zip(names, figures, strict=True)) for figures in outcomes.class_figures()]


def card(class_names: Sequence[str], evaluation: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts of a model card; without an evaluation, none of the scores."""
    names, num_classes = class_names[:MAX_CARD_CLASSES], len(class_names)
    more = ", …" * (num_classes > MAX_CARD_CLASSES)
    found = {
        "purpose": f"in {num_classes} classes",
        "decisions": f"Classes: {', '.join(names)}{more}.",
        "outputs": f"logits [batch, {num_classes}]",
        "probabilities": "softmax(logits / $temperature)",
        "num_outputs": num_classes,
        "answer_in_python": PYTHON,
        "answer_in_cpp": CPP.format(num_classes),
        "answer_in_libtorch": LIBTORCH,
        "unknown": "Every input gets one of the classes above, also what belongs to none",
        "thin": "",
    }
    if evaluation is None:
        return found
    scores = list(zip(class_names, evaluation["classes"], strict=True))[:MAX_CARD_CLASSES]
    rows = [[name, *(f"{c[key]:.4f}" for key in IN_TABLE), c["samples"]] for name, c in scores]
    if few := sum(c["samples"] < FEW_SAMPLES for c in evaluation["classes"]):
        found["thin"] = (
            f"\n- {few} classes have fewer than {FEW_SAMPLES} samples there: their scores say "
            "little."
        )
    return found | {
        "score": f"Accuracy {evaluation['accuracy']:.2%}",
        "table": Table(["class", "precision", "recall", "F1", "samples"], rows),
    }


def differences(
    names: Sequence[str],
    other_names: Sequence[str],
    a: Mapping[str, Any] | None,
    b: Mapping[str, Any] | None,
) -> list[str]:
    """Classes that only one of two models has, and those whose F1 differs most."""
    first, second = dict.fromkeys(names), dict.fromkeys(other_names)
    sides = ("A", first.keys() - second), ("B", second.keys() - first)
    lines = [
        f"Classes only {label} has: {', '.join(sorted(only)[:MAX_COMPARED_CLASSES])}"
        for label, only in sides
        if only
    ]
    if a is None or b is None:
        return [*lines, "No class scores: one of them is unverified."]
    lines.append(
        f"Checkpoints: {a['accuracy']:.2%} of {a['num_samples']} samples right, "
        f"{b['accuracy']:.2%} of {b['num_samples']}."
    )
    before, after = (
        {name: scores["f1"] for name, scores in zip(known, found["classes"], strict=True)}
        for known, found in ((names, a), (other_names, b))
    )
    shared = [name for name in first if name in second]
    shared.sort(key=lambda name: -abs(after[name] - before[name]))
    for name in shared[:MAX_COMPARED_CLASSES]:
        x, y = before[name], after[name]
        lines.append(f"  F1 of {name}: {x:.4f} -> {y:.4f} ({y - x:+.4f})")
    return lines
