"""Which operators of an ONNX graph are quantized: how, all but which, and whether it was done."""

from typing import Any

WEIGHTED = ("Conv", "Gemm", "MatMul")
RECURRENT = ("LSTM", "GRU", "RNN", "Scan", "Loop")
INTEGER_OPERATORS = (
    "ConvInteger",
    "MatMulInteger",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "DynamicQuantizeLSTM",
    "QAttention",
    "QEmbedLayerNormalization",
)
POSITIONS = {"RoiAlign": 1, "GridSample": 1}  # which input holds places in the first
SHOWN = 6  # names in a line of the table; the manifest has all


def plan(graph: Any) -> str:
    """ "static" for a convolution network, "dynamic" where there is recurrence or attention."""
    operators = {node.op_type for node in graph.node}
    has_attention = any(
        producer.op_type == "Softmax" and user.op_type == "MatMul"
        for producer in graph.node
        for user in graph.node
        if set(producer.output) & set(user.input)
    )
    if operators & {*RECURRENT, "Attention"} or has_attention or "Conv" not in operators:
        return "dynamic"
    return "static"


def output_node(graph: Any) -> str:
    """Name of the last node with weights: the one that makes the logits."""
    producers = {name: node for node in graph.node for name in node.output}
    waiting = [graph.output[0].name]
    for name in waiting:
        node = producers.get(name)
        if node is None:
            continue
        if node.op_type in WEIGHTED:
            return node.name
        waiting += node.input
    raise ValueError("no node with weights leads to the logits")


def kept_in_fp32(graph: Any, method: str) -> list[list[str]]:
    """Names of the nodes that stay in FP32, one list an attempt, each longer than the last."""
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    if method == "static":
        others = [node.name for node in graph.node if node.op_type != "Conv"]
        depthwise = [node.name for node in convolutions if groups(node) > 1]
        steps = [[output_node(graph)], [convolutions[0].name], others, depthwise]
    else:
        embeddings = [node.name for node in graph.node if node.op_type == "Gather"]
        steps = [[node.name for node in convolutions], [output_node(graph)], embeddings]
    stages = [steps[0] + [name for name in places(graph) if name not in steps[0]]]
    for step in steps[1:]:
        more = [name for name in step if name not in stages[-1]]
        if more:
            stages.append(stages[-1] + more)
    return stages


def places(graph: Any) -> list[str]:
    """Nodes that compute places in an image: in 256 steps a box would not be where it was."""
    producers = {name: node for node in graph.node for name in node.output}
    waiting = [
        node.input[POSITIONS[node.op_type]] for node in graph.node if node.op_type in POSITIONS
    ]
    found = {}
    for name in waiting:
        node = producers.get(name)
        if node is not None and node.name not in found:
            found[node.name] = node
            waiting += node.input
    return [node.name for node in graph.node if node.name in found]


def groups(convolution: Any) -> int:
    return next((entry.i for entry in convolution.attribute if entry.name == "group"), 1)


def shortened(names: list[str]) -> str:
    """The first few of many names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more or "nothing"


def count_quantized(graph: Any) -> int:
    """Nodes that compute with integers, or read stored integers (QDQ weights, embeddings)."""
    stored = {tensor.name for tensor in graph.initializer}
    from_stored = {
        node.output[0]
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
    }
    quantized_tables = {
        node.input[0] for node in graph.node if node.op_type == "Gather" and node.input[0] in stored
    }
    dequantized = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return sum(
        node.op_type in INTEGER_OPERATORS
        or (node.op_type in (*WEIGHTED, "Gather") and bool(from_stored & set(node.input)))
        or (
            node.op_type == "Gather"
            and node.input[0] in quantized_tables
            and node.output[0] in dequantized
        )
        for node in graph.node
    )
