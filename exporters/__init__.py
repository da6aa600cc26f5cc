"""Export formats: a short name leads to a module, imported only when that format is made.

A format's module has `FILE`, `PRECISION` ("fp32" or "int8"), `RUNTIME`, and the functions
`unavailable`, `export`, `read_back` and `load`; `exporters/torchscript.py` is the shortest example.
"""

import sys

EXPORTERS: dict[str, str] = {
    "torchscript": "exporters.torchscript",
    "pt2": "exporters.pt2",
    "onnx": "exporters.onnx_float",
    "onnx-int8": "exporters.onnx_int8",
    "onnx-int8-qat": "exporters.onnx_int8_qat",
    "aoti": "exporters.aoti",
}
HAS_TORCHSCRIPT = sys.version_info < (3, 14)  # absent there; asked for by name, the reason is said
DEFAULT_FORMATS = ("torchscript",) * HAS_TORCHSCRIPT + ("pt2", "onnx", "onnx-int8")
OPSET, OPSETS = 20, (18, 25)  # of ONNX; the bounds of what torch.onnx and ONNX Runtime both take
NATIVE_FORMATS = ("aoti",)  # machine code: loaded only when just made, or with --trust
