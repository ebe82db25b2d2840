"""An exported folder -> a model that answers for RobertaHub, by its graph, on the CPU.

Shapes: B sequences, T positions, V vocabulary, D model dimension, M positions that are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roberta_plugin.conversion.portable import MASKED_LM
from roberta_plugin.data.tokenizers import load_tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.extensions.onnx.files import FACTS, INT8_MODEL, MODEL, VERSION, compute_checksum
from roberta_plugin.extras import require
from roberta_plugin.hub.graphs import GraphModel, OpenedGraph
from roberta_plugin.json_files import read_json
from roberta_plugin.models.heads import Pooling
from roberta_plugin.registry import HEADS

_KEYS = ("version", "head", "sizes", "trained_on", "files")
_INPUTS = ["input_ids", "attention_mask"]
# Dimensions of the outputs of kinds without a head in the registry; "" is the encoder alone, whose outputs are vectors.
_RANKS = {MASKED_LM: (3,), "": (2,)}
_AGAIN = "export the checkpoint again by `roberta export --to onnx`"
_POSITIONS_AT_ONCE = 512  # positions of a part, because the graph computes the vocabulary's scores at all of them


def _check_files(folder: Path, files: object, *, unused: str) -> None:
    """Compare the files of a folder with their checksums. The graph `unused`, in another precision, may be missing."""
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise ValueError(f"{folder / FACTS} is damaged (files is {files!r:.60}): {_AGAIN}.")
    for name, checksum in files.items():
        if name.startswith(unused):
            continue
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}: {_AGAIN}.")
        if compute_checksum(folder / name) != checksum:
            raise ValueError(f"{folder / name} is not as it was exported: {_AGAIN}.")


def read_onnx(folder: Path, *, precision: str) -> OpenedGraph:
    """Open an exported folder.

    Raises:
        ValueError: if it is of another version, is damaged, or has no such precision; or without ONNX Runtime.
    """
    require("onnxruntime", extra="onnx", purpose=f"{folder}, an ONNX model,")
    names = {"fp32": MODEL, "int8": INT8_MODEL}
    if precision not in names:
        raise ValueError(
            f"--precision {precision}: {folder} is an ONNX model, which has fp32 or int8. Give one of them."
        )
    facts = read_json(folder / FACTS, keys=["version"], remedy=_AGAIN)
    if facts is None:
        raise ValueError(
            f"{folder} has a graph and no {FACTS}, as in exports of other programs: give the folder that it was "
            f"exported from, or {_AGAIN}."
        )
    if facts["version"] != VERSION:
        raise ValueError(
            f"{folder} is from another version of this plugin: {FACTS} must have version {VERSION}, and it has version "
            f"{facts['version']}. Please {_AGAIN}."
        )
    if lacking := next((key for key in _KEYS if key not in facts), None):
        raise ValueError(f"{folder / FACTS} does not have the key {lacking!r}: {_AGAIN}.")
    path = folder / names[precision]
    if not path.is_file():
        remedy = "export it with --int8 TEXT" if precision == "int8" else _AGAIN
        raise FileNotFoundError(f"{folder} has no {path.name}: {remedy}.")
    trained_on = facts["trained_on"]
    if not isinstance(trained_on, dict) or not isinstance(trained_on.get("settings", {}), dict):
        raise ValueError(f"{folder / FACTS} is damaged (trained_on is {trained_on!r:.60}): {_AGAIN}.")
    _check_files(folder, facts["files"], unused=names["fp32" if precision == "int8" else "int8"])
    return OpenedGraph(
        model=OnnxModel(path, facts),
        tokenizer=load_tokenizer(folder),
        vocabulary=Vocabulary.load(folder / "dict.txt"),
        trained_on=trained_on,
    )


class OnnxModel(GraphModel):
    """A graph that ONNX Runtime computes on the CPU, with as many threads as torch."""

    what = "an ONNX model"

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        """Open a graph."""
        import onnxruntime  # type: ignore[import-untyped]

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            name, kind = str(facts["head"]["name"]), str(facts["head"]["kind"])
            self.dim, self._max_positions = int(facts["sizes"]["dim"]), int(facts["sizes"]["max_positions"])
            num_outputs = int(facts["head"]["num_outputs"])
            ranks = _RANKS.get(kind) or HEADS.load(kind, "head").output_ranks
            inputs = [entry.name for entry in self._session.get_inputs()]
            shapes = [entry.shape for entry in self._session.get_outputs()]
            if inputs != _INPUTS or [len(shape) for shape in shapes] != list(ranks):
                raise ValueError(f"the graph does not have a head of the kind {kind}")
            self._pooling = None if kind else facts["trained_on"]["settings"].get("pooling", "mean")
            if kind in HEADS and len(ranks) == 1 and shapes[0][-1] != num_outputs:
                raise ValueError(f"the graph has {shapes[0][-1]} outputs instead of {num_outputs}")
        except Exception as error:  # ONNX Runtime has classes of its own for damaged files
            why = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())[:160]
            raise ValueError(f"{path} or {FACTS} beside it is damaged ({why}): {_AGAIN}.") from error
        self.path, self._is_masked_lm = path, kind == MASKED_LM
        self.head_kinds = {} if self._is_masked_lm or not kind else {name: kind}
        self.heads = {name: SimpleNamespace(out_proj=SimpleNamespace(out_features=num_outputs))}

    def max_positions(self) -> int:
        """The most tokens in a sequence."""
        return self._max_positions

    def forward(self, tokens: Tensor, *, classification_head_name: str | None = None, **layout: Any) -> tuple[Any]:
        """Ids (B, T), padded -> (the outputs of the head,), as `FastRobertaModel` does.

        Raises:
            ValueError: if it has no such head; a graph has no features either.
        """
        if classification_head_name not in self.head_kinds:
            has = " and ".join(self.head_kinds) or ("the masked-LM head" if self._is_masked_lm else "vectors of texts")
            raise ValueError(
                f"{self.path} is an ONNX model and only has {has}: use the checkpoint for features, vectors and other "
                "heads."
            )
        outputs = self._run(tokens, has_padding=layout.get("has_padding", True))
        return (outputs[0] if len(outputs) == 1 else tuple(outputs),)

    def position_logits(self, tokens: Tensor, positions: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Scores of the vocabulary at some positions of each row, as `hub/running.position_logits`: parts (M', V)."""
        if not self._is_masked_lm:
            raise ValueError(f"{self.path} was exported without its masked-LM head: export with --head masked_lm.")
        step = max(1, _POSITIONS_AT_ONCE // tokens.size(1))
        for start in range(0, len(tokens), step):
            (logits,) = self._run(tokens[start : start + step], has_padding=True)
            for row, places in zip(logits, positions[start : start + step], strict=True):
                yield row[list(places)]

    def pooled(self, tokens: Tensor, pooling: Pooling, *, has_padding: bool) -> Tensor:
        """Ids (B, T), padded -> vectors (B, D), as the graph pools them.

        Raises:
            ValueError: if it has no vectors, or pools otherwise.
        """
        if self._pooling is None:
            raise ValueError(
                f"{self.path} is an ONNX model and has no vectors of texts: export with --head encoder, or use the "
                "checkpoint."
            )
        if pooling != self._pooling:
            raise ValueError(
                f"{self.path} is an ONNX model with the pooling {self._pooling}: leave --pooling {pooling} out, or use "
                "the checkpoint."
            )
        return self._run(tokens, has_padding=has_padding)[0]

    def _run(self, tokens: Tensor, *, has_padding: bool) -> list[Tensor]:
        pad_id = 1
        mask = tokens.ne(pad_id).long() if has_padding else torch.ones_like(tokens)
        feed = {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()}
        try:
            outputs = self._session.run(None, feed)
        except Exception as error:  # ONNX Runtime has classes of its own, and colours of terminals in their texts
            why = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())[:160]
            raise ValueError(f"{self.path} cannot be computed ({why}): {_AGAIN}, or use the checkpoint.") from error
        return [torch.from_numpy(np.asarray(value)) for value in outputs]
