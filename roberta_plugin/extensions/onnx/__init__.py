"""Graphs for ONNX Runtime, with 8-bit weights as an option: `roberta export --to onnx`, and their predictions.

model     a model -> model.onnx and the files to read it
graph     such a folder -> a model that answers for RobertaHub
files     the files of such a folder
options   options of roberta export

The examples are in README.md.
"""

from roberta_plugin.registry import Extension, FormatEntry

EXTENSION = Extension(
    "onnx",
    __name__,
    position=110,
    moved={"conversion.onnx_model": ".model"},
    formats={
        "onnx": FormatEntry(
            ".model:OnnxFormat",
            marks=("model.onnx", "model.int8.onnx", "roberta.json"),
            own_mark="roberta.json",
            opener=".graph:read_onnx",
            takes_any_layers=True,
            weights=("model.onnx", "model.int8.onnx"),
            files=("roberta.json",),
            own_files=("model.onnx", "model.int8.onnx", "model.onnx.data"),
        )
    },
    export_options={"onnx": ".options:OnnxOptions"},
)
