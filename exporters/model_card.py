"""The README.md of a bundle: model_card.md filled in from the manifest."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from preprocessing.inputs import InputsSpec
from tasks.base import build_task

HERE = Path(__file__).parent
FORMS = {
    "image": {
        "what": "pictures",
        "goes_in": "uint8 pixels [batch, $channels, $height, $width]; normalisation is in the "
        "model. `preprocessing/images.py` says how files of other sizes, modes and orientations "
        "become that (resize: $resize).",
        "needs": "pillow",
        "example": "some.png folder/",
        "column": "path",
    },
    "region": {
        "what": "regions of pictures",
        "goes_in": "uint8 pixels [batch, $channels, $height, $width], which the model normalises, "
        "and a box in each, float32 [batch, 4]: x1, y1, x2, y2 in these pixels. "
        "`preprocessing/regions.py` scales pictures of other sizes, and boxes with them. "
        "`predict.py` reads them from a table with the columns path, $columns, in pixels of the "
        "picture.",
        "needs": "pillow",
        "example": "--column path table.csv",
        "column": "path",
    },
    "text": {
        "what": "texts",
        "goes_in": "token ids [batch, length] by `$tokenizer`, at most $max_length a text, padded "
        "with 0 at the end, and their number in each text [batch].",
        "needs": "tokenizers",
        "example": '--text "some text" folder/',
        "column": "text",
    },
    "arrays": {
        "what": "arrays",
        "goes_in": "$described; how a file becomes these is not known here, so samples are .npz "
        "files that hold one array an input, without the axis of the batch.",
        "needs": "",
        "example": "sample.npz folder/",
        "column": "path",
    },
}


def model_card(manifest: Mapping[str, Any]) -> str:
    """Markdown."""
    kind = manifest["preprocessing"]["kind"]
    card = build_task(manifest).card(manifest["evaluation"])
    inputs = InputsSpec.from_json(manifest["input_spec"])
    values = {
        **manifest,
        **manifest["preprocessing"],
        **FORMS[kind],
        "network": manifest["network"]["name"],
        **card,
        "decisions": cell(card["decisions"]),
        "epochs": "unknown" if (epoch := manifest["checkpoint"]["epoch"]) is None else epoch + 1,
        "checkpoint": manifest["checkpoint"]["sha256"],
        "settings": settings_rows(manifest),
        "scores": scores(manifest, card),
        "formats": format_rows(manifest),
        "test": tested_on(manifest["eager"].get("test")),
        "architecture": manifest["machine"].get("architecture", ""),
        "onnxruntime": manifest["versions"].get("onnxruntime", "of unknown version"),
        "file": example_file(manifest),
        "first": inputs.names[0],
        "last": inputs.names[-1],
        "columns": ", ".join(manifest["preprocessing"].get("boxes", ())),
        "described": "; ".join(item.describe() for item in inputs.inputs),
        "probabilities": Template(card["probabilities"]).substitute(
            temperature=f"{manifest['calibration']['temperature']:g}"
        ),
        "files": rows((n, f["bytes"], f"`{f['sha256']}`") for n, f in manifest["files"].items()),
    }
    for name, source in (("goes_in", values["goes_in"]), ("calls", read(f"call_{kind}.md"))):
        values[name] = Template(source).substitute(values)
    script = manifest["artifacts"].get("torchscript") or {}
    if script.get("file") and kind != "arrays":
        source = read(f"call_{kind}_torchscript.md")
        libraries = ", ".join((script.get("details") or {}).get("libraries", ()))
        of_script = {"file": script["file"], "libraries": libraries}
        values["calls"] += Template(source).substitute(values | of_script)
    return Template(read("model_card.md")).substitute(values)


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def cell(value: object) -> str:
    """One line that cannot break a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def rows(cells: Iterable[Iterable[object]]) -> str:
    """Rows of a Markdown table."""
    return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in cells)


def settings_rows(manifest: Mapping[str, Any]) -> str:
    """The network's arguments, then what trained it."""
    arguments = {f"model.{k}": v for k, v in manifest["network"]["arguments"].items()}
    return rows((k, json.dumps(v)[:200]) for k, v in (arguments | manifest["training"]).items())


def scores(manifest: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """The checkpoint on the validation set, as its task has it."""
    found = manifest["evaluation"]
    if found is None:
        return "Unverified: there were no validation samples."
    table = card["table"]
    part = "" if found["whole"] else " (a part of it)"
    return f"""{card["score"]} on {found["num_samples"]} samples of the validation
set{part} that chose the checkpoint. {calibration_line(manifest["calibration"])}

| {" | ".join(table.columns)} |
|{"---|" * len(table.columns)}
{rows(table.rows)}"""


def calibration_line(calibration: Mapping[str, Any]) -> str:
    """What the temperature does, or why there is none."""
    if calibration["note"]:
        return f"Probabilities are not calibrated: {calibration['note']}."
    return (
        f"Probabilities: calibration error {calibration['error_before']:.4f} before, "
        f"{calibration['error_after']:.4f} with temperature {calibration['temperature']:.3g} "
        f"(fitted on {calibration['samples']} validation samples)."
    )


def format_rows(manifest: Mapping[str, Any]) -> str:
    """What became of each format, after the checkpoint itself."""
    reference = manifest["eager"] | {"verdict": "reference"}
    metric = build_task(manifest).main_metric
    return rows(
        (
            name,
            entry.get("file") or "",
            f"{entry['bytes'] / 1e6:.2f}" if "bytes" in entry else "",
            *score_cells(entry, metric, ".2f"),
            entry["verdict"],
        )
        for name, entry in {"eager PyTorch": reference, **manifest["artifacts"]}.items()
    )


def score_cells(entry: Mapping[str, Any], key: str, form: str) -> list[str]:
    """On the validation and on the test split: in percent, or points more than eager's."""
    found = ((scores or {}).get(key) for scores in (entry, entry.get("test")))
    return ["" if value is None else format(value, form) for value in found]


def tested_on(test: Mapping[str, Any] | None) -> str:
    """What the last but one column of the formats is of."""
    if test is None:
        return ""
    part = "" if test["whole"] else " (a part of it)"
    return f"Test: {test['paired']['samples']} samples of that set{part}, which decided nothing."


def example_file(manifest: Mapping[str, Any]) -> str:
    """The model that the examples open: the recommended one, if ONNX Runtime runs it."""
    entries = manifest["artifacts"]
    order = [entries[name] for name in (manifest["recommended"], *entries) if name in entries]
    found = (e["file"] for e in order if e["file"] and e["runtime"] == "onnxruntime")
    return next(found, "model.onnx")
