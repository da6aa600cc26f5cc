"""INT8: how it is made for which network, and which calibration samples are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from exporters import onnx_int8
from exporters.calibration_samples import check_calibration
from exporters.candidate import ExportJob, Options
from exporters.quantized_graph import (
    count_quantized,
    kept_in_fp32,
    output_node,
    plan,
    shortened,
)

NORMALISATION = {"mean": [0.3], "std": [0.2]}


def samples(mean: float = 0.3, std: float = 0.2, count: int = 200) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    pixels = generator.normal(255 * mean, 255 * std, (count, 1, 8, 8))
    return {"images": np.clip(pixels, 0, 255).astype(np.uint8)}


@pytest.fixture(scope="module")
def int8(job: ExportJob, float_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int8") / onnx_int8.FILE
    details = onnx_int8.export(replace(job, float_onnx=float_onnx), path)
    assert details["method"] == "static"
    assert details["calibration"] == "240 samples"
    return path


def test_convolutions_are_static_and_the_last_node_stays_fp32(int8: Path) -> None:
    graph = onnx.load(int8).graph
    producers = {name: node for node in graph.node for name in node.output}
    assert producers[graph.output[0].name].op_type == "Gemm"
    stored = {tensor.name: tensor for tensor in graph.initializer}
    head = producers[graph.output[0].name]
    assert stored[head.input[1]].data_type == TensorProto.FLOAT
    kinds = {tensor.data_type for name, tensor in stored.items() if name.endswith("quantized")}
    assert TensorProto.INT8 in kinds
    assert count_quantized(graph) == 3  # two convolutions and the hidden layer


def test_weights_are_per_channel(int8: Path) -> None:
    scales = [t for t in onnx.load(int8).graph.initializer if t.name.endswith("weight_scale")]
    assert {tuple(t.dims) for t in scales} >= {(4,), (8,)}


def test_only_the_model_is_left_in_the_folder(int8: Path) -> None:
    assert [path.name for path in int8.parent.iterdir()] == [onnx_int8.FILE]


def test_it_says_what_it_is(int8: Path, job: ExportJob) -> None:
    facts = onnx_int8.read_back(int8, job.spec)
    assert facts["quantized_operators"] == 3
    assert facts["opset"] == 20


def test_it_can_be_made_without_a_proven_fp32_file(job: ExportJob, tmp_path: Path) -> None:
    onnx_int8.export(job, tmp_path / onnx_int8.FILE)
    assert [path.name for path in tmp_path.iterdir()] == [onnx_int8.FILE]


def test_a_file_without_quantized_operators_is_refused(float_onnx: Path, job: ExportJob) -> None:
    with pytest.raises(ValueError, match="no operator is quantized"):
        onnx_int8.read_back(float_onnx, job.spec)


def test_missing_calibration_is_one_message(
    job: ExportJob, float_onnx: Path, tmp_path: Path
) -> None:
    without = replace(job, float_onnx=float_onnx, calibration=None)
    with pytest.raises(ValueError, match="needs calibration samples"):
        onnx_int8.export(without, tmp_path / onnx_int8.FILE)


@pytest.mark.parametrize(("vnni", "reduced"), [(True, False), (False, True)])
def test_the_weight_range_is_reduced_only_without_vnni(
    job: ExportJob, float_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    vnni: bool, reduced: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(onnx_int8, "has_vnni", lambda: vnni)
    path = tmp_path / onnx_int8.FILE
    details = onnx_int8.export(replace(job, float_onnx=float_onnx), path)
    assert details["reduce_range"] is reduced
    weights = [
        onnx.numpy_helper.to_array(t)
        for t in onnx.load(path).graph.initializer
        if t.data_type == TensorProto.INT8
    ]
    largest = max(int(np.abs(w.astype(int)).max()) for w in weights)
    assert (largest <= 64) is reduced


def test_good_calibration_samples_pass() -> None:
    assert check_calibration(samples(), NORMALISATION, 5000) == "200 samples"


def outlier(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    floating = arrays["images"].astype(np.float32)
    floating[0] = 1e6
    return {"images": floating}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((200, 1, 8, 8), np.uint8)}, r"mean 0 and std 0, but training"),
        ({"images": samples()["images"].astype(np.float32) * 255}, "but training inputs have mean"),
        (outlier(samples()), "but training inputs have mean"),
        (samples(mean=0.95, std=0.05), "mean 0.9.*but training inputs have mean 0.3"),
        (samples(count=199), "199 calibration samples; at least 200"),
        ({"images": np.full((200, 1, 8, 8), np.nan, np.float32)}, "not finite"),
    ],
)
def test_bad_calibration_samples_are_refused(arrays: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_calibration(arrays, NORMALISATION, 5000)


def test_all_samples_of_a_small_set_are_enough_and_said() -> None:
    assert check_calibration(samples(count=48), NORMALISATION, 48) == "48 samples (all there are)"


def graph_of(*nodes: tuple[str, list[str], list[str]]) -> onnx.GraphProto:
    made = [
        helper.make_node(kind, ins, outs, name=f"n{i}") for i, (kind, ins, outs) in enumerate(nodes)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_graph(made, "g", [], [output])


@pytest.mark.parametrize(
    ("nodes", "method"),
    [
        ([("Conv", ["x", "w"], ["a"]), ("Gemm", ["a", "v"], ["y"])], "static"),
        ([("Gather", ["e", "x"], ["a"]), ("Conv", ["a", "w"], ["y"])], "static"),
        ([("LSTM", ["x", "w", "r"], ["y"])], "dynamic"),
        ([("Conv", ["x", "w"], ["a"]), ("LSTM", ["a", "w", "r"], ["y"])], "dynamic"),
        ([("Softmax", ["x"], ["a"]), ("MatMul", ["a", "v"], ["y"])], "dynamic"),
        ([("Gemm", ["x", "w"], ["y"])], "dynamic"),
    ],
)
def test_the_operators_decide_the_method(nodes: list, method: str) -> None:
    assert plan(graph_of(*nodes)) == method


def test_the_node_that_makes_the_logits_is_found() -> None:
    graph = graph_of(
        ("Conv", ["x", "w"], ["a"]), ("Gemm", ["a", "v"], ["b"]), ("Add", ["b", "c"], ["y"])
    )
    assert output_node(graph) == "n1"
    with pytest.raises(ValueError, match="no node with weights"):
        output_node(graph_of(("Relu", ["x"], ["y"])))


def test_what_stays_in_fp32_grows_along_the_list() -> None:
    graph = graph_of(
        ("Conv", ["x", "u"], ["a"]), ("Relu", ["a"], ["b"]), ("Conv", ["b", "w"], ["c"]),
        ("Gemm", ["c", "v"], ["y"]),
    )  # fmt: skip
    graph.node[2].attribute.append(helper.make_attribute("group", 4))
    stages = [["n3"], ["n3", "n0"], ["n3", "n0", "n1"], ["n3", "n0", "n1", "n2"]]
    assert kept_in_fp32(graph, "static") == stages
    recurrent = graph_of(
        ("Gather", ["e", "x"], ["a"]), ("LSTM", ["a", "w", "r"], ["b"]),
        ("MatMul", ["b", "v"], ["y"]),
    )  # fmt: skip
    assert kept_in_fp32(recurrent, "dynamic") == [[], ["n2"], ["n2", "n0"]]


def test_what_computes_places_always_stays_in_fp32() -> None:
    graph = graph_of(
        ("Conv", ["x", "u"], ["a"]), ("Concat", ["i", "boxes"], ["r"]), ("Slice", ["r"], ["s"]),
        ("Cast", ["r"], ["n"]), ("RoiAlign", ["a", "s", "n"], ["p"]), ("Gemm", ["p", "v"], ["y"]),
    )  # fmt: skip
    first, *others = kept_in_fp32(graph, "static")
    assert first == ["n5", "n1", "n2"]
    assert all(set(first) < set(other) for other in others)


def test_a_long_list_of_names_is_shortened() -> None:
    assert shortened([]) == "nothing"
    assert shortened(list("abcdef")) == "a, b, c, d, e, f"
    assert shortened(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_a_later_attempt_quantizes_less_and_names_what_it_left(
    job: ExportJob, float_onnx: Path, tmp_path: Path
) -> None:
    again = replace(job, float_onnx=float_onnx, options=Options(attempt=2))
    path = tmp_path / onnx_int8.FILE
    details = onnx_int8.export(again, path)
    names = [node.name for node in onnx.load(float_onnx).graph.node if node.op_type == "Conv"]
    assert names[0] in details["left_in_fp32"]
    assert names[1] not in details["left_in_fp32"]
    assert details["more_in_fp32"] is False  # no depthwise convolution
    assert onnx_int8.read_back(path, job.spec)["quantized_operators"] == 1
    assert details["notes"][0].startswith("static, in FP32: ")


def test_a_large_last_node_is_stored_small_and_computed_in_fp32(
    job: ExportJob, float_onnx: Path, int8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_int8, "MIN_STORED_BYTES", 1)
    path = tmp_path / onnx_int8.FILE
    details = onnx_int8.export(replace(job, float_onnx=float_onnx), path)
    graph = onnx.load(path).graph
    producers = {name: node for node in graph.node for name in node.output}
    head = producers[graph.output[0].name]
    assert [head.name] == details["left_in_fp32"]
    kinds = {t.name: t.data_type for t in graph.initializer}
    restored = producers[head.input[1]]
    assert restored.op_type == "DequantizeLinear"
    assert kinds[restored.input[0]] == TensorProto.INT8
    assert head.input[0] not in kinds  # what comes in is not rounded
    images = {"images": job.calibration["images"]}
    found, plain = (onnx_int8.load(p, ["images"], 1)(images) for p in (path, int8))
    np.testing.assert_allclose(found, plain, atol=0.01 * np.abs(plain).max())


def test_large_models_quantize_with_external_data(job: ExportJob, tmp_path: Path) -> None:
    path = tmp_path / onnx_int8.FILE
    onnx_int8.export(job, path, max_bytes=100)
    assert {p.name for p in tmp_path.iterdir()} <= {path.name, f"{path.name}.data"}
    assert onnx_int8.read_back(path, job.spec)["quantized_operators"] == 3
    onnx_int8.load(path, ["images"], 1)({"images": job.calibration["images"][:2]})


def test_shape_inference_that_gives_up_leaves_nothing_behind(
    job: ExportJob, float_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real one writes into the current folder before it raises."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    def give_up(*_: object) -> None:
        Path("sym_shape_infer_temp.onnx").write_bytes(b"")
        raise Exception("Incomplete symbolic shape inference")

    monkeypatch.setattr(SymbolicShapeInference, "infer_shapes", give_up)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "int8"
    folder.mkdir()
    details = onnx_int8.export(replace(job, float_onnx=float_onnx), folder / onnx_int8.FILE)
    assert details["shape_inference"] == "without symbolic shapes (Exception)"
    assert [p.name for p in tmp_path.rglob("*")] == ["int8", onnx_int8.FILE]
