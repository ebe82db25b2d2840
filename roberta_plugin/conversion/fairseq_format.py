"""fairseq's checkpoints and archives of any year, ours included <-> a portable model.

    a .pt file, its folder, the folder of a run, the --output-dir of `roberta finetune`       read
    roberta.base.tar.gz: model.pt dict.txt NOTE    2019: half precision, names that begin with `decoder.`, query, key
                                                   and value in one matrix, options in an argparse.Namespace
    DIR/model.pt  dict.txt  encoder.json ...       today's layout, with the tokenizer's files

An archive may come from anywhere: only files with known names are extracted, and an archive with paths that lead out of
its folder is refused.

Shapes: D model dimension.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from roberta_plugin.checkpoint_files import REMEDY, DivergedError, check_numbers, load_state
from roberta_plugin.conversion.fields import check_fairseq
from roberta_plugin.conversion.formats import Format, instead
from roberta_plugin.conversion.huggingface_tokenizers import write_pieces
from roberta_plugin.conversion.model_files import (
    decisions_of,
    find_checkpoint,
    find_dictionary,
    find_tokenizer,
    training_data,
)
from roberta_plugin.conversion.portable import (
    PortableModel,
    check_vocabulary,
    choose_head,
    labels_of,
    rescale_to_labels,
)
from roberta_plugin.conversion.settings import CommonExportSettings, Layout
from roberta_plugin.data.tokenizers import file_names
from roberta_plugin.data.tokenizers.additions import FILE as ADDITIONS
from roberta_plugin.data.tokenizers.additions import additions_of, base_of
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.tokenizers.byte_level_bpe import ByteLevelBpe
from roberta_plugin.data.vocabulary import MASK, Vocabulary
from roberta_plugin.files import atomic_write, write_text
from roberta_plugin.finetuning import identity
from roberta_plugin.models.adapters import merge
from roberta_plugin.models.checkpoints import architecture, model_arguments, saved_options
from roberta_plugin.models.config import check_has_no_switch
from roberta_plugin.models.head_parameters import CLASSIFICATION, head_prefixes
from roberta_plugin.models.state_dicts import TOKENS, VERSION, from_older_fairseq
from roberta_plugin.record import differences, listed, refuse

logger = logging.getLogger(__name__)

MODEL = "model.pt"
ADAPTERS = "adapters"  # entry of a portable model: the adapters that `adapters.merge` has added to its weights
NOTE = "NOTE"
FAIRSEQS_EPSILON = 1e-5  # fairseq's epsilon of layer norms
_KEPT_OF_TASK = (str, int, float, bool)


class CheckpointFiles(NamedTuple):
    """A checkpoint and the files that belong to it."""

    path: Path
    state: dict[str, Any]
    """Its content. The head of a regression is rescaled to the labels."""
    dictionary: Path
    vocabulary: Vocabulary
    tokenizer: Tokenizer


def read_files(
    folder: Path,
    *,
    name: str | None = None,
    data: str | os.PathLike[str] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> CheckpointFiles:
    """Find and read a checkpoint, its dict.txt and its tokenizer.

    Args:
        folder: see `find_checkpoint`.
        name: name of the checkpoint, if it is not one of the usual names.
        data: folder with dict.txt and the tokenizer, if they are not found beside the checkpoint.
        tokenizer: folder with the tokenizer's files, if it is another folder; or `whitespace`.
    """
    checkpoint = find_checkpoint(folder, name)
    state = _with_decisions(rescale_to_labels(load_state(checkpoint, for_use=True)), checkpoint)
    identity.check_installed(state, checkpoint=checkpoint)
    try:
        dictionary = find_dictionary(checkpoint, state, data)
    except FileNotFoundError:
        if data is not None or not (folder / "data" / "dict.txt").is_file():
            raise
        dictionary = folder / "data" / "dict.txt"  # after `roberta finetune`, if its folder was moved
    for note in check_fairseq(state, checkpoint):
        logger.warning(note)
    model_tokenizer = find_tokenizer(checkpoint, dictionary, tokenizer)
    trained_with = identity.read_record(state).get("tokenizer") or {}
    if ADDITIONS in (trained_with.get("sha256") or {}) and base_of(model_tokenizer) is model_tokenizer:
        raise FileNotFoundError(
            f"{checkpoint} was trained with added tokens, but {ADDITIONS}, which holds them, is missing beside the "
            f"tokenizer of {dictionary}: copy it from where the model comes from."
        )
    vocabulary = Vocabulary.load(dictionary)
    if (given := tokenizer if data is None else tokenizer or data) is not None:
        _check_given(checkpoint, state, dictionary, model_tokenizer, given=given)
    return CheckpointFiles(checkpoint, state, dictionary, vocabulary, model_tokenizer)


def _check_given(
    checkpoint: Path,
    state: Mapping[str, Any],
    dictionary: Path,
    tokenizer: Tokenizer,
    *,
    given: str | os.PathLike[str],
) -> None:
    """Refuse a tokenizer or dict.txt that was given in place of the model's own, by the record of its training.

    If its own files are not found, another record may describe the same tokenizer in other files: then it is a warning.
    """
    trained, ours = identity.read_record(state), tokenizer.description()
    theirs = trained.get("tokenizer") or {}
    try:
        own_dictionary = find_dictionary(checkpoint, dict(state), None)
        own = find_tokenizer(checkpoint, own_dictionary, None).description()
    except (FileNotFoundError, ValueError):
        own = {}
    names = [name for name in ("kind", "language", "sha256") if (theirs or own).get(name)]
    before = {"dict.txt": trained.get("vocabulary"), **{name: (theirs or own)[name] for name in names}}
    now = {"dict.txt": Vocabulary.load(dictionary).sha256, **{name: ours.get(name) for name in names}}
    changes = differences(
        before, now, free=lambda name: before[name] is None, named=lambda name: f"the tokenizer's {name}"
    )
    if not changes:
        return
    if not theirs or own != theirs:
        logger.warning(
            f"{checkpoint}: {given} is used in place of its own tokenizer: {listed(changes)}. If it was not trained "
            "with that, ids stand for other words."
        )
        return
    refuse(
        f"{checkpoint} was trained with another tokenizer or dict.txt than {given}",
        changes,
        f"So ids stand for other words: leave the option out, {own_dictionary.parent} has its own.",
    )


def _with_decisions(state: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The content of a checkpoint with the numbers by which it decides, which only an import records in the file."""
    record, decisions = identity.read_record(state), decisions_of(checkpoint)
    if not record or not decisions:
        return state
    return {**state, "task_state": {**state["task_state"], identity.KEY: {**record, identity.DECISIONS: decisions}}}


def read_checkpoint(
    path: Path,
    *,
    data: Path | None = None,
    tokenizer: Path | None = None,
    head: str | None = None,
    source: str = "checkpoint",
) -> PortableModel:
    """The model of a checkpoint, with its tokenizer and vocabulary.

    Raises:
        ValueError: if they do not fit each other, or the checkpoint is damaged or holds another model.
    """
    checkpoint, state, dictionary, vocabulary, model_tokenizer = read_files(path, data=data, tokenizer=tokenizer)
    content = to_our_layout(state, checkpoint)
    check_vocabulary(len(content["model"][TOKENS]), vocabulary, path=checkpoint, vocabulary_path=dictionary)
    chosen = choose_head(content, head, checkpoint)
    labels = labels_of(content, chosen, data=dictionary.parent.parent)
    if not identity.read_record(content) and (trained_on := training_data(state, dictionary)):
        settings = {**trained_on["settings"], "labels": list(labels)}
        content["task_state"][identity.KEY] = {"task": "", "settings": settings}
    return PortableModel(
        state=content,
        tokenizer=model_tokenizer,
        vocabulary=vocabulary,
        head=chosen,
        labels=labels,
        path=checkpoint,
        source=source,
        training=training_facts(state),
    )


def to_our_layout(state: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The content of a checkpoint with our names of parameters and the options of our model.

    Raises:
        ValueError: if it holds another model, or its options contradict its parameters.
    """
    options = {**vars(model_arguments(state, path)), "_name": "fast_roberta"}
    del options["arch"]
    task, saved = saved_options(state)
    content = {**state, "model": from_older_fairseq(state["model"])}
    try:
        adapters = merge(content["model"])
        description = architecture(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error} {REMEDY}") from error
    if bool(saved.get("encoder_normalize_before")) != bool(description.get("encoder_normalize_before")):
        raise ValueError(
            f"{path}: encoder_normalize_before is {saved.get('encoder_normalize_before')!r} in the options, and the "
            "parameters of an encoder with it have a layer norm after the last layer: copy the file again."
        )
    options = {**description, **options}
    options.pop("layernorm_embedding", None)  # fairseq's name for the opposite of ours
    task_options = {name: value for name, value in task.items() if isinstance(value, _KEPT_OF_TASK)}
    if task_options.get("_name") == "sentence_prediction":  # fairseq's task, whose models ours reads
        task_options["_name"] = "roberta_sentence_prediction"
    return {
        "args": None,
        "cfg": {"task": task_options, "model": options},
        "model": content["model"],
        "task_state": dict(state.get("task_state") or {}),
        **{name: state[name] for name in ("huggingface",) if name in state},
        **({ADAPTERS: adapters} if adapters else {}),
    }


def training_facts(state: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint's record of its training. Tokens are counted for full blocks, so they are an upper bound.

    Example: 100 updates of 2 x 8 blocks of 512 tokens on 4 GPUs -> {"updates": 100, "tokens": 3276800, ...}.
    """
    config = state.get("cfg") or {}
    sections = ("optimization", "dataset", "lr_scheduler", "optimizer", "task", "distributed_training", "checkpoint")
    options: dict[str, Any] = dict(vars(state["args"])) if isinstance(state.get("args"), argparse.Namespace) else {}
    for section in sections:
        content = config.get(section) if isinstance(config, Mapping) else None
        options |= dict(content) if isinstance(content, Mapping) else {}
    names = ["lr", "batch_size", "max_update", "warmup_updates", "weight_decay", "adam_betas", "tokens_per_sample"]
    names += ["finetune_from_model"]
    facts = {name: options[name] for name in names if options.get(name) is not None}
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", 0)
    seconds = float((state.get("extra_state") or {}).get("previous_training_time", 0))  # with several ranks, a tensor
    facts |= {"updates": updates} if updates else {}
    facts |= {"hours": round(seconds / 3600, 2)} if seconds else {}
    batch, length = options.get("batch_size"), options.get("tokens_per_sample")
    if updates and batch and length:
        frequency = (options.get("update_freq") or [1])[0]
        of_update = batch * frequency * (options.get("distributed_world_size") or 1)
        facts["tokens"] = updates * length * (options.get("update_sequences") or of_update)
    return facts


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The files of a model out of an archive, in a temporary folder.

    Raises:
        ValueError: if the archive is damaged, holds no model.pt, or has paths that lead out of its folder.
    """
    with tempfile.TemporaryDirectory(prefix="roberta-archive-") as name:
        folder = Path(name)
        try:
            with tarfile.open(archive) as members:
                for member in members:
                    _take(archive, members, member, folder)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ValueError(f"{archive} is damaged or not a tar archive ({error}): download it again.") from error
        if not (folder / MODEL).is_file():
            raise ValueError(f"{archive} has no {MODEL}: it is not one of fairseq's archives of a RoBERTa.")
        yield folder


def _take(archive: Path, members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"{archive} contains the path {member.name!r}, which leads out of its folder: do not trust it."
        )
    if member.isdir() or path.name not in (MODEL, "dict.txt", NOTE, *file_names()):
        return
    if not member.isfile():
        raise ValueError(f"{archive}: {member.name} is a link or a device, not a file: do not trust the archive.")
    if (folder / path.name).exists():
        raise ValueError(f"{archive} holds {path.name} twice: unpack it, and name the folder of the right one.")
    free = shutil.disk_usage(folder).free
    if member.size > free:
        raise ValueError(
            f"{archive}: {member.name} takes {member.size / 1e9:.1f} GB, and {folder.parent} has {free / 1e9:.1f} GB "
            "left: set TMPDIR to a folder with more room."
        )
    content: IO[bytes] | None = members.extractfile(member)
    assert content is not None
    with content, open(folder / path.name, "wb") as out:
        shutil.copyfileobj(content, out)


class FairseqFormat(Format):
    """A folder that fairseq opens without this plugin."""

    has_segments = has_tokenizer = has_logit_rules = False
    tokenizer, mask = "fairseq", MASK
    vectors_note = (
        "fairseq's RoBERTa needs a masked-LM head, and the exported one was not trained with this encoder: get vectors "
        "by extract_features."
    )

    def check(self, model: PortableModel) -> None:  # noqa: D102
        options = model.state["cfg"]["model"]
        check_has_no_switch(options, path=model.path, other="fairseq's RoBERTa", instead=instead("huggingface"))

    def write(self, model: PortableModel, folder: Path, settings: CommonExportSettings) -> Sequence[str]:  # noqa: D102
        write_fairseq(model, folder, layout=settings.layout, half=settings.half)
        return ()

    def usage(self, model: PortableModel) -> str:  # noqa: D102
        return f"See the file {NOTE}."


def write_fairseq(model: PortableModel, folder: Path, *, layout: Layout = "today", half: bool = False) -> None:
    """Write model.pt, dict.txt, the tokenizer and a NOTE into an existing folder, for fairseq without this plugin.

    All classification heads are included, as in roberta.large.mnli. fairseq's hub registers them by name.

    Raises:
        ValueError: for heads, an epsilon of layer norms, or added tokens that fairseq's RoBERTa does not support.
    """
    for prefix in head_prefixes(model.parameters):
        if prefix != CLASSIFICATION:
            raise ValueError(
                f"{model.path} has a {prefix.partition('_')[0]} head, which fairseq's RoBERTa does not support: use "
                "--to huggingface (with --head encoder for the encoder alone), or the checkpoint itself."
            )
    tokens, add_prefix_space = additions_of(model.tokenizer)
    if tokens or add_prefix_space:
        contents = ", ".join(repr(token.content) for token in tokens[:5]) + (", ..." if len(tokens) > 5 else "")
        what = f"has added tokens ({contents})" if tokens else "puts a space in front of texts (add_prefix_space)"
        raise ValueError(
            f"The tokenizer of {model.path} {what}, which fairseq's tokenizers do not support: use "
            f"{instead('huggingface')}."
        )
    epsilon = model.state["cfg"]["model"].get("layer_norm_eps", FAIRSEQS_EPSILON)
    if epsilon != FAIRSEQS_EPSILON:
        raise ValueError(
            f"{model.path} has layer norms with layer_norm_eps {epsilon}, and fairseq's RoBERTa always computes with "
            f"{FAIRSEQS_EPSILON}, so its answers would differ: use {instead('huggingface')}."
        )
    parameters = {name: value.half() if half else value for name, value in model.parameters.items()}
    try:
        check_numbers(model.path, parameters)  # only --half can make them infinite: the model was checked on opening
    except DivergedError as error:
        raise ValueError(f"{model.path} has numbers above 65,504, the largest of 16 bits: leave --half out.") from error
    options = {name: value for name, value in model.state["cfg"]["model"].items() if not name.startswith("_")}
    if options.get("encoder_normalize_before") and layout == "2019":
        raise ValueError(
            f"{model.path} normalizes before its layers (encoder_normalize_before), which fairseq's RoBERTa of 2019 "
            "did not support: leave --layout 2019 out."
        )
    options["layernorm_embedding"] = not options.pop("no_layernorm_embedding", False)
    # Only plain types, which torch's safe loading reads. fairseq's hub only overrides options that are in the file.
    options |= {"_name": "roberta", "load_checkpoint_heads": False}
    task = {"_name": "masked_lm", "data": ".", "tokens_per_sample": options["max_positions"]}
    parameters = to_layout_of_2019(parameters) if layout == "2019" else parameters
    state = {"args": None, "cfg": _config(task, options), "model": parameters}
    save_state(folder / MODEL, state)
    write_words(model, folder)
    write_text(folder / NOTE, _note(model))


def write_ours(model: PortableModel, folder: Path) -> None:
    """Write model.pt, dict.txt and the tokenizer for this plugin, as `roberta import` does."""
    task = {**model.state["cfg"]["task"], "data": "."}
    options = dict(model.state["cfg"]["model"])
    content = {**model.state, "args": None, "cfg": _config(task, options)}
    content.pop(ADAPTERS, None)  # they are part of the weights
    save_state(folder / MODEL, content)
    write_words(model, folder)


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a checkpoint with all entries that fairseq expects; shared tensors are stored once."""
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    content = {
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1}},
        "last_optimizer_state": None,
        "task_state": {},
        **state,
    }
    with atomic_write(path) as file:
        torch.save(content, file)


def to_layout_of_2019(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Today's names -> the names of the released models.

    Example: the three ...self_attn.q_proj.weight, k_proj and v_proj (D, D) -> decoder....self_attn.in_proj_weight
    (3 D, D).
    """
    result: dict[str, Tensor] = {}
    for name, value in parameters.items():
        if name == VERSION:
            continue
        old = re.sub(r"^encoder\.", "decoder.", name).replace(".layernorm_embedding.", ".emb_layer_norm.")
        match = re.fullmatch(r"(.*\.self_attn\.)([qkv])_proj\.(weight|bias)", old)
        if match is None:
            result[old] = value
        elif match[2] == "q":
            parts = [parameters[name.replace(".q_proj.", f".{letter}_proj.")] for letter in "qkv"]
            result[f"{match[1]}in_proj_{match[3]}"] = torch.cat(parts)
    return result


def _config(task: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"task": dict(task), "model": dict(options), "bpe": None, "common": {"seed": 1}}


def write_words(model: PortableModel, folder: Path) -> None:
    """Write dict.txt and the tokenizer's files into a folder."""
    model.vocabulary.save(folder / "dict.txt")
    model.tokenizer.save(folder)
    tokenizer = base_of(model.tokenizer)
    if isinstance(tokenizer, ByteLevelBpe):  # fairseq finds these two by itself, with bpe="hf_byte_bpe"
        pieces = {piece: number for number, piece in enumerate(tokenizer.pieces)}
        write_pieces(pieces, tokenizer.merges, folder)


def _note(model: PortableModel) -> str:
    """Python code by which fairseq opens the folder."""
    bpe = {"byte_level_bpe": "hf_byte_bpe", "sentencepiece": "sentencepiece"}.get(model.tokenizer.name)
    how = f'RobertaModel.from_pretrained("THIS FOLDER", "model.pt", bpe="{bpe}")'
    if bpe is None:
        how = 'RobertaModel.from_pretrained("THIS FOLDER", "model.pt", bpe=None)  # roberta_plugin has its tokenizer'
    heads = sorted({name.split(".")[1] for name in model.parameters if name.startswith(CLASSIFICATION)})
    listed = f"Classification heads: {', '.join(heads)}.\n" if heads else ""
    labels = f"Classes of {model.head.name}, in their order: {', '.join(model.labels)}.\n" if model.labels else ""
    return f"from fairseq.models.roberta import RobertaModel\nroberta = {how}\n\n{listed}{labels}"
