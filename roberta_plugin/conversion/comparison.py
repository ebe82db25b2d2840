"""Compares an imported model with the program that it comes from, if that is installed: ids and answers must be equal.

A handful of texts goes through both tokenizers and both models. A difference is refused with its size, whatever its
cause is: a field of a file that the tables of fields do not know, an unusual tokenizer, or a fault of our reading.

There are tables as well (`fields`, `data/tokenizers/huggingface_fields`), for these reasons. Of 391 folders with
unusual fields, from public reports and tests, 38 gave other answers than the other program. The tables refused 32 of
them and warned of 4 (now 6); this check refused 37. Of six faults in our own reading, the tables noticed none, and this
check all. But the check needs the other program, and only sees one version of it: transformers 5 leaves out steps of
tokenizer.json that other versions and programs follow. So 50 folders that it reads as we do are only refused by the
tables.

Shapes: B texts, T positions, D model dimension, V vocabulary.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from roberta_plugin.conversion.formats import formats_in
from roberta_plugin.conversion.huggingface import read_config
from roberta_plugin.conversion.model_files import OLD_WEIGHTS, WEIGHTS
from roberta_plugin.conversion.portable import MASKED_LM, PortableModel
from roberta_plugin.conversion.pretrained import build
from roberta_plugin.data.tokenizers.huggingface import their_ids
from roberta_plugin.finetuning.layouts.texts import Encoder
from roberta_plugin.finetuning.records import as_read

TEXTS = (
    "Hello world, it's 3.14 o'clock; isn't it?",
    "Two  spaces, (brackets) [and] {more}: ALL CAPS, MiXed, snake_case, http://a.b/c?d=1&e=2, 1234567890",
    "\u00c9lan vital, na\u00efve Z\u00fcrich, \u0440\u0443\u0441\u0441\u043a\u0438\u0439, \u0395\u03bb\u03bb\u03ac",
    "\u6570\u5b57 123,456 \u3068\u6f22\u5b57\u3002\u3053\u308c\u306f\u6587\u3067\u3059 \uc548\ub155\ud558\uc138\uc694",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0939\u093f\u0928\u094d\u0926 \u0e20\u0e32\u0e29 \u05e9\u05dc\u05d5\u05dd",
    "Emoji \U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f6a2\ufe0f, \u2026 \u201cquotes\u201d",
    "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all. " * 8,
)
"""White space, accents, scripts, digits, emoji, and a long text.

They leave out texts that both sides are known to read differently: see the notes of an import.
"""
TOLERANCE = 1e-3  # largest difference, as a share of the largest number
KERNELS = "sdpa"  # overrides config.json, which can name code at the hub
UNTRUSTED: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_LONGEST = 300  # positions; longer than the windows of ModernBERT


def compare(
    model: PortableModel, *, adapt: Callable[[Any], Any] | None = None, base: PortableModel | None = None
) -> str:
    """Refuse a model whose answers differ from its folder in transformers.

    `adapt` adds an adapter to the model of transformers, and `base` is ours without it, as the files of other formats
    in the folder describe it.

    Returns:
        The reason why it was not compared, for the user; empty if it was, or if nobody has to know.

    Raises:
        ValueError: with the size of the difference.
    """
    folder = model.path if model.path.is_dir() else model.path.parent
    if model.source != "huggingface" or not is_installed("transformers"):
        return ""
    if model.path.is_file() and model.path.name not in (WEIGHTS, OLD_WEIGHTS):
        return ""  # transformers would read other weights of the folder
    if read_config(folder).get("auto_map"):
        return ""  # code of other authors is not run
    forms = list(formats_in(folder))
    if any(form.changes_answers for form in forms):
        return ""  # a note says so
    try:
        with _quiet():
            _compare_ids(model, folder)
            _compare_answers(model, folder, adapt)
            for form in forms:
                form.compare(base or model, folder)
    except _NotOpenedError as error:
        return f"{folder} was not compared with transformers, which does not open it ({error})."
    return ""


class _NotOpenedError(Exception):
    """The other program does not open the folder."""


@contextlib.contextmanager
def other_program() -> Iterator[None]:
    """A context for calls of the other program, whose errors are not ours."""
    try:
        yield
    except Exception as error:
        first = next(filter(None, map(str.strip, str(error).splitlines())), "")
        raise _NotOpenedError(f"{type(error).__name__}: {first[:200]}") from error


def is_installed(package: str) -> bool:
    """True if a package can be imported."""
    return importlib.util.find_spec(package) is not None


def _order(model: PortableModel) -> Any:
    """Their id of each of our ids (V,)."""
    order = their_ids(model.tokenizer, model.vocabulary.symbols)
    return np.arange(len(model.vocabulary)) if order is None else order


def _compare_ids(model: PortableModel, folder: Path) -> None:
    """Compare the ids of texts without the special symbols around them: a note reports differences of those."""
    texts = [as_read(text, "stripped" if model.white_space == "kept" else model.white_space) for text in TEXTS]
    with other_program():
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(folder, **UNTRUSTED)
        found = [list(theirs(text, add_special_tokens=False)["input_ids"]) for text in texts]
    encoder, order = Encoder(model.tokenizer, model.vocabulary), _order(model)
    for text, wanted in zip(texts, found, strict=True):
        ours = order[encoder.ids(text)].tolist()
        if ours != wanted:
            pairs = zip(ours, wanted, strict=False)
            at = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(wanted)))
            raise ValueError(
                f"{folder}: the tokenizer gives other ids here than in transformers: {text[:40]!r} has {len(ours)} "
                f"tokens here and {len(wanted)} there; from token {at} on, they are {ours[at : at + 3]} here and "
                f"{wanted[at : at + 3]} there. Use it with transformers, or import it with --no-comparison."
            )


def _compare_answers(model: PortableModel, folder: Path, adapt: Callable[[Any], Any] | None) -> None:
    """Compare the logits of the head, or the features of an encoder.

    Texts are compared in a padded batch, and a row of random tokens alone, because other kernels compute it. Their ids
    are ordered as `order` says. The options of a multiple choice go in as one example (1, B, T), and its logits (1, B)
    are compared with ours (B, 1).
    """
    with other_program():
        import transformers

        suffix, number = model.head.hugging_face.suffix, model.head.num_outputs
        labels = {"num_labels": number} if adapt is not None and number else {}
        name = "AutoModel" if suffix == "Model" else f"AutoModel{suffix}"
        opened, found = getattr(transformers, name).from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=KERNELS,
            output_loading_info=True,
            **UNTRUSTED,
            **labels,
        )
        lacking = sorted(key for key in found["missing_keys"] if "pooler." not in key)
        if lacking and adapt is None:  # they would be random; peft brings the parameters of an adapter's head
            raise KeyError(f"it finds no {lacking[0]}")
        theirs = (opened if adapt is None else adapt(opened)).eval()
    ours: Any = build(model)
    order = torch.from_numpy(_order(model).astype(np.int64))
    longest = min(_LONGEST, int(model.state["cfg"]["model"]["max_positions"]))
    drawn = torch.randint(5, len(order), (longest - 2,), generator=torch.Generator().manual_seed(1)).tolist()
    for rows in (rows_of_texts(model, longest), [[model.vocabulary.bos_id, *drawn, model.vocabulary.eos_id]]):
        ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=model.vocabulary.pad_id)
        is_token = ids != model.vocabulary.pad_id
        is_choice = model.head.hugging_face.reads_options
        inputs = {"input_ids": order[ids], "attention_mask": is_token.long()}
        with torch.no_grad(), other_program():
            out = theirs(
                **{key: value[None] if is_choice else value for key, value in inputs.items()}, return_dict=True
            )
        names = [key for key in ("last_hidden_state", "logits", "start_logits", "end_logits") if key in out]
        for key, found in zip(names, our_answers(model, ours, ids), strict=False):
            wanted = out[key][..., order] if model.head.kind == MASKED_LM else out[key]
            wanted = wanted.reshape(found.shape) if is_choice else wanted
            kept = is_token if found.shape[:2] == is_token.shape == wanted.shape[:2] else ...
            check_same(found[kept], wanted[kept], folder, "answers")


def our_answers(model: PortableModel, ours: Any, ids: Tensor) -> Sequence[Tensor]:
    """Our outputs for ids (B, T): logits of the head, or features (B, T, D)."""
    with torch.no_grad():
        if model.head.is_encoder:
            return [ours(ids, features_only=True, has_padding=True)[0]]
        out = ours(ids, head=None if model.head.kind == MASKED_LM else model.head.name, has_padding=True)[0]
    return [out] if isinstance(out, Tensor) else list(out)


def rows_of_texts(model: PortableModel, longest: int, *, prompt: str = "") -> list[list[int]]:
    """The ids of each text with the special symbols around it."""
    encoder = Encoder(model.tokenizer, model.vocabulary)
    return [encoder.join(encoder.ids(f"{prompt}{text}".strip()), max_length=longest).tolist() for text in TEXTS]


def check_same(found: Tensor, wanted: Tensor, folder: Path, what: str) -> None:
    """Refuse numbers that differ from the other program's."""
    most = float(wanted.abs().max())
    difference = float((found - wanted).abs().max()) if found.shape == wanted.shape else float("inf")
    if not difference <= TOLERANCE * most:
        raise ValueError(
            f"{folder}: the {what} differ from transformers' by {difference:.3g}, where the largest number is "
            f"{most:.3g}. Use it with transformers, or import it with --no-comparison."
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the other program's progress bars and warnings."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), open(os.devnull, "w", encoding="utf-8") as nowhere:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            with contextlib.redirect_stderr(nowhere):
                yield
        finally:
            logging.disable(disabled)
