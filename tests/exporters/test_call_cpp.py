"""The C++ of a bundle's card: compiled as it stands there, it gives the predictor's answers."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import export
from lightning_modules.deployed import deploy, network_class
from preprocessing.text import TextTokenizer, basic_english_tokenizer, text_inputs
from tests.exporters import small_run
from tests.test_predict_text import INPUT_SPEC, NETWORK, PREPROCESSING, WORDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]

TEXTS = ["a very good film", "bad", "the film", "good good bad very bad"]
LIBTORCH = "torch/script.h"
ONNX_RUNTIME = "onnxruntime_cxx_api.h"


def write_text_run(folder: Path) -> Path:
    """An untrained network, which chooses several classes all the same."""
    torch.manual_seed(0)
    arguments = NETWORK["arguments"] | {"num_classes": 3}
    model = deploy(network_class("text_cnn")(**arguments), None, INPUT_SPEC)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter) if parameter.ndim > 1 else torch.nn.init.zeros_(parameter)
    description = {
        "format": 2, "network": {"name": "text_cnn", "arguments": arguments},
        "class_names": ["a", "b", "c"], "input_spec": INPUT_SPEC, "preprocessing": PREPROCESSING,
        "files": {"tokenizer.json": basic_english_tokenizer(WORDS).to_str()},
        "normalisation": None, "config": {}, "scores": {},
    }  # fmt: skip
    small_run.write_checkpoint(folder / small_run.CHECKPOINT, model, description)
    return folder


@pytest.fixture(scope="module", params=["image", "text"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    run = (small_run.make_run if request.param == "image" else write_text_run)(folder)
    arguments = ["--ckpt", str(run / small_run.CHECKPOINT), "--requested", ""]
    export.main([*arguments, "--skip_timing", "--formats", "torchscript,onnx"])
    return run / "export"


def questions(bundle: Path, folder: Path) -> tuple[list[str], list[bytes]]:
    """Samples as the predictor takes them, and as the programs read them."""
    preprocessing = json.loads((bundle / "manifest.json").read_text())["preprocessing"]
    if preprocessing["kind"] == "text":
        tokenizer = TextTokenizer((bundle / "tokenizer.json").read_text())
        ids = [text_inputs([text], tokenizer, preprocessing)["tokens"][0] for text in TEXTS]
        flags = [part for text in TEXTS for part in ("--text", text)]
        return flags, [" ".join(map(str, row)).encode() for row in ids]
    with np.load(bundle.parent / "samples" / "validation.npz") as file:
        images = file["images"][:6, 0]  # two of each class
    paths = [str(folder / f"{i}.png") for i in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths, [image.tobytes() for image in images]


def compiler_flags(header: str, folder: Path) -> list[str]:
    """Where headers and libraries are; skips where the machine has no headers."""
    if header == LIBTORCH:
        from torch.utils import cpp_extension

        (libraries,) = cpp_extension.library_paths()
        flags = [f"-I{path}" for path in cpp_extension.include_paths()]
        flags += ["-ltorch", "-ltorch_cpu", "-lc10"]
        flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
    else:
        probe = ["g++", "-E", "-x", "c++", "-include", header, "/dev/null"]
        if subprocess.run(probe, capture_output=True).returncode:
            pytest.skip("the headers of ONNX Runtime are not part of its Python package")
        package = Path(onnxruntime.__file__).parent / "capi"
        library = folder / "libonnxruntime.so.1"
        library.symlink_to(next(package.glob("libonnxruntime.so*")))
        libraries, flags = str(folder), [str(library)]
    return [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *flags]


@pytest.mark.parametrize("header", [LIBTORCH, ONNX_RUNTIME])
def test_cpp_gives_the_predictors_answers(bundle: Path, tmp_path: Path, header: str) -> None:
    if header == LIBTORCH and sys.version_info >= (3, 14):
        pytest.skip("TorchScript is absent there")
    found = re.findall(r"```cpp\n(.*?)```", (bundle / "README.md").read_text(), re.DOTALL)
    (source,) = (text for text in found if header in text)
    (tmp_path / "call.cpp").write_text(source)
    command = ["g++", "-std=c++20", "-O0", "-o", tmp_path / "call", tmp_path / "call.cpp"]
    command += compiler_flags(header, tmp_path)
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:2000]

    flags, contents = questions(bundle, tmp_path)
    command = [sys.executable, bundle / "predict.py", "--format", "jsonl", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = json.loads((bundle / "manifest.json").read_text())["class_names"]
    lines = map(json.loads, done.stdout.splitlines())
    expected = [names.index(line["predictions"][0]["class"]) for line in lines]
    assert len(set(expected)) > 1
    answers = [
        int(subprocess.run([tmp_path / "call"], cwd=bundle, input=text, capture_output=True,
                           check=True).stdout)
        for text in contents
    ]  # fmt: skip
    assert answers == expected
