"""Exports to ONNX by name."""

from pathlib import Path

import pytest

from roberta_plugin.conversion.named_models import local_path
from roberta_plugin.conversion.pretrained import read_any
from tests.hub_server import empty_hub
from tests.refusals import refused
from tests.tiny_conversions import exported, new_masked_lm, new_shards

NAME = Path("org/tiny")


hub = pytest.fixture(empty_hub)
ours = pytest.fixture(new_masked_lm, scope="module")
theirs = pytest.fixture(new_shards, scope="module")


def test_the_files_of_an_export_to_onnx_come_and_graphs_of_others_do_not(hub, theirs):
    files = {path.name: path.read_bytes() for path in theirs.iterdir()}
    graph = dict.fromkeys(("model.onnx", "dict.txt", "encoder.json", "a.py"), b"x")
    hub.add("org/graph", {**graph, "roberta.json": b"{}"})
    hub.add("org/tiny", {**files, "model.onnx": b"x", "checkpoint-5/model.safetensors": b"x"})
    names = {path.name for path in local_path(Path("org/graph")).iterdir()}
    assert names == {"roberta.json", "model.onnx", "dict.txt", "encoder.json"}
    assert not {"model.onnx", "checkpoint-5"} & {path.name for path in local_path(NAME).iterdir()}


def test_the_graph_of_another_program_is_named(ours, tmp_path):
    folder = exported(ours, tmp_path / "theirs").folder
    (folder / "model.safetensors").rename(folder / "model.onnx")
    refused(r"model\.onnx is a graph that another program exported", read_any, folder, error=FileNotFoundError)
