"""A portable model -> a folder of sentence-transformers: that of Hugging Face, and how its features become a vector.

modules.json                        the parts of the model, in order
1_Pooling/config.json               mean, <s> (cls) or max
2_Normalize                         if vectors have the length 1
sentence_bert_config.json           most tokens of a text
config_sentence_transformers.json   vectors are compared by their cosine
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roberta_plugin.conversion.huggingface import write_huggingface
from roberta_plugin.conversion.portable import PortableModel
from roberta_plugin.finetuning import identity
from roberta_plugin.json_files import write_json

# Names of all versions; those since 6 read them, too.
_PARTS = "sentence_transformers.models"
_MODES = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


def write_sentence_transformers(model: PortableModel, folder: Path, *, max_shard_bytes: int) -> None:
    """Write the files; pooling and length are those of the training, or the mean and all positions."""
    write_huggingface(model, folder, max_shard_bytes=max_shard_bytes)
    options: Any = model.state["cfg"]["model"]
    settings = identity.of_checkpoint(model.state).get("settings") or {}
    parts = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if settings.get("normalize"):
        parts.append(("2_Normalize", "Normalize"))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_PARTS}.{name}"}
        for number, (path, name) in enumerate(parts)
    ]
    pooling = {f"pooling_mode_{mode}": name == settings.get("pooling", "mean") for name, mode in _MODES.items()}
    max_length = min(settings.get("max_length", options["max_positions"]), options["max_positions"])
    contents: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": options["encoder_embed_dim"], **pooling},
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, content)
