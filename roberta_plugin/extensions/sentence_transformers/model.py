"""A folder of sentence-transformers: a folder of Hugging Face, and how its features become a vector (`reading`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from roberta_plugin.conversion.comparison import (
    KERNELS,
    TEXTS,
    UNTRUSTED,
    check_same,
    is_installed,
    other_program,
    our_answers,
    rows_of_texts,
)
from roberta_plugin.conversion.families import arguments_without_pooler, check_switches, trust
from roberta_plugin.conversion.formats import Format
from roberta_plugin.conversion.huggingface import write_huggingface
from roberta_plugin.conversion.portable import ENCODER, PortableModel
from roberta_plugin.conversion.pretrained import build
from roberta_plugin.conversion.settings import CommonExportSettings
from roberta_plugin.extensions.sentence_transformers.reading import vectors_of
from roberta_plugin.finetuning import identity
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.records import WhiteSpace
from roberta_plugin.json_files import write_json
from roberta_plugin.models.heads import pool

_PARTS = "sentence_transformers.models"  # the names of older versions, which versions since 6 read, too
_MODES = {"first": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


class SentenceTransformersFormat(Format):
    """A folder that sentence-transformers opens."""

    head, what_head, pipeline = ENCODER, "vectors of the encoder", "sentence-similarity"
    has_segments = reads_pairs = False
    has_code = True

    def check(self, model: PortableModel) -> None:  # noqa: D102
        check_switches(model.state["cfg"]["model"], model.path)

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:  # noqa: D102
        write_sentence_transformers(model, folder, max_shard_bytes=settings.max_shard_bytes)
        return ()

    def usage(self, model: PortableModel) -> str:  # noqa: D102
        return usage(model)

    def read_beside(self, folder: Path) -> tuple[dict[str, Any], list[str]]:  # noqa: D102
        return vectors_of(folder)

    def compare(self, model: PortableModel, folder: Path) -> None:  # noqa: D102
        if model.head.is_encoder and is_installed("sentence_transformers"):
            compare_vectors(model, folder)


def usage(model: PortableModel) -> str:
    """The section of a model card on how to use a folder of sentence-transformers."""
    call = f'vectors = SentenceTransformer("FOLDER"{trust(model)}).encode(["A text.", "Another one."])'
    return f"```python\nfrom sentence_transformers import SentenceTransformer\n\n{call}\n```"


def write_sentence_transformers(model: PortableModel, folder: Path, *, max_shard_bytes: int) -> None:
    """Write a folder of sentence-transformers, with the mean of all positions if the model has no pooling."""
    options: Any = model.state["cfg"]["model"]
    settings = identity.read_record(model.state).get("settings") or {}
    is_left_out = settings.get("include_prompt") is False  # then the space at a prompt's end counts
    white_space: WhiteSpace = "kept" if is_left_out else "stripped"
    write_huggingface(model, folder, max_shard_bytes=max_shard_bytes, white_space=white_space)
    chosen, normalizes = model.vectors
    parts = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if normalizes:
        parts.append(("2_Normalize", "Normalize"))
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_PARTS}.{name}"}
        for number, (path, name) in enumerate(parts)
    ]
    pooling = {f"pooling_mode_{mode}": name == chosen for name, mode in _MODES.items()}
    if is_left_out:
        pooling["include_prompt"] = False
    max_length = min(settings.get("max_length", options["max_positions"]), options["max_positions"])
    contents: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {"word_embedding_dimension": options["encoder_embed_dim"], **pooling},
        "sentence_bert_config.json": {
            "max_seq_length": max_length,
            "do_lower_case": False,
            "model_args": arguments_without_pooler(model),
        },
        "config_sentence_transformers.json": {
            "prompts": settings.get("prompts") or {},
            "default_prompt_name": settings.get("default_prompt_name"),
            "similarity_fn_name": "cosine",
        },
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_json(folder / name, content)


def compare_vectors(model: PortableModel, folder: Path) -> None:
    """Compare the vectors of texts with sentence-transformers, also with the first of the model's prompts."""
    settings = identity.read_record(model.state)["settings"]
    prompts = ["", *filter(None, (settings.get("prompts") or {}).values())][:2]
    with other_program():
        from sentence_transformers import SentenceTransformer

        own = {"attn_implementation": KERNELS}
        theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs=own, **UNTRUSTED)
        wanted = torch.cat([theirs.encode(list(TEXTS), prompt=each, convert_to_tensor=True) for each in prompts])
    longest = int(settings["max_length"])
    pooling, is_normalized = model.vectors
    ours, encoder, vectors = build(model), Encoder(model.tokenizer, model.vocabulary), []
    for prompt in prompts:
        rows = [torch.tensor(row) for row in rows_of_texts(model, longest, prompt=prompt)]
        ids = pad_sequence(rows, batch_first=True, padding_value=model.vocabulary.pad_id)
        is_left_out = bool(prompt) and settings.get("include_prompt") is False
        skipped = min(1 + len(encoder.ids(prompt)), longest - 1) if is_left_out else 0
        features = our_answers(model, ours, ids)[0]
        vectors.append(pool(features, ids != model.vocabulary.pad_id, pooling, skipped=skipped))
    found = torch.cat(vectors)
    check_same(F.normalize(found, dim=-1) if is_normalized else found, wanted, folder, "vectors")
