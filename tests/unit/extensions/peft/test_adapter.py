"""Adapters in the files of peft, without that program: by how much they are scaled."""

import pytest
import torch

from roberta_plugin.checkpoint_files import load_state
from roberta_plugin.json_files import write_json
from tests.tiny_conversions import exported, imported, write_checkpoint

safetensors = pytest.importorskip("safetensors.torch")
LAYER = "encoder.layer.0.attention.self.query"
OURS = "encoder.sentence_encoder.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(("fields", "scale"), [({}, 6 / 4), ({"use_rslora": False}, 6 / 4), ({"use_rslora": True}, 3)])
def test_alpha_is_divided_by_the_rank_or_with_rslora_by_its_root(tmp_path, fields, scale):
    base = write_checkpoint(tmp_path / "base")
    folder = exported(base, tmp_path / "theirs").folder
    before = load_state(base / "model.pt")["model"][OURS]
    a, b = torch.randn(4, len(before)), torch.randn(len(before), 4)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    prefix = f"base_model.model.roberta.{LAYER}.lora_"
    safetensors.save_file({f"{prefix}A.weight": a, f"{prefix}B.weight": b}, adapter / "adapter_model.safetensors")
    write_json(adapter / "adapter_config.json", {"peft_type": "LORA", "r": 4, "lora_alpha": 6, **fields})
    result = imported(folder, tmp_path / "merged", adapter=adapter)
    found = load_state(result.folder / "model.pt")["model"][OURS]
    torch.testing.assert_close(found, before + scale * b @ a)
