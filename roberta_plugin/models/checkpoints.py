"""A checkpoint -> its model, built only from the classes and options listed here; `checkpoint_files.py` reads the file.

fairseq builds any registered model, task, criterion or BPE that a checkpoint names, and some of them `eval` strings of
its options: wav2vec2's conv_feature_layers, fconv's encoder_layers, and xformers_att_config, which fairseq's own
roberta passes to its attention. So a file that torch reads safely can still run code. Therefore we accept only listed
models and listed options, each a number, a switch or the name of an activation, and ignore everything else.

fairseq takes the architecture from the command line and does not compare it with the checkpoint until torch refuses the
shapes. Here sizes come from the parameters; the number of heads and the activations come from the saved options.

Parameters have the names of fairseq's `roberta`, in files of any year. A head NAME of a kind is `heads.NAME` in our
model, and KIND_heads.NAME in its state dict, so that fairseq's `roberta` finds its classification heads and a file says
the kind of each head. Functions take and return state dicts; tensors are shared, not copied.

The encoder must fit the model that loads it. Heads need not: fine-tuning starts from a model with other heads, or none.
The parts for pairs of texts, segments and next-sentence prediction, may also be missing in one of them. Fine-tuning and
the hub keep segments; pretraining without pairs may have none. In a model without segment embeddings, all tokens have
segment 0. When such a model loads a checkpoint with segments, the row of segment 0 is added to the embeddings of
positions, or to the tokens' if there are none: a single text has the same features as before.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import torch
from fairseq import utils
from fairseq.tasks import FairseqTask
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from roberta_plugin.checkpoint_files import REMEDY, read_tensors
from roberta_plugin.foreign_fields import USED, Table, check_fields, known, only
from roberta_plugin.models.config import (
    ACTIVATIONS,
    ARCHITECTURE,
    ARCHITECTURES,
    INITIAL,
    SWITCHES,
    FastRobertaConfig,
    has_position_limit,
    read_config,
)
from roberta_plugin.models.head_parameters import HasHeads
from roberta_plugin.models.sharing import PARTS, aliases
from roberta_plugin.settings import choices_of, short

VERSION = "encoder.sentence_encoder.version"
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
EMBEDDING_NORM = "encoder.sentence_encoder.layernorm_embedding.weight"
FINAL_NORM = "encoder.sentence_encoder.layer_norm.weight"  # of encoders that normalize before their sublayers
ROWS_BEFORE_POSITIONS = 2  # of POSITIONS, in fairseq's layout

# Released in 2019 -> now, in this order, as regular expressions.
OLDER_FAIRSEQ = (
    (r"^decoder\.", "encoder."),
    (r"\.emb_layer_norm\.", ".layernorm_embedding."),
    (r"\.layer_norms\.0\.", ".self_attn_layer_norm."),
    (r"\.layer_norms\.1\.", ".final_layer_norm."),
)


def from_older_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Any layout that fairseq's `roberta` has had, its released models included -> ours."""
    renamed: dict[str, Tensor] = {}
    for old, value in state.items():
        name = old
        for pattern, replacement in OLDER_FAIRSEQ:
            name = re.sub(pattern, replacement, name)
        match = re.fullmatch(r"(.*\.self_attn\.)in_proj_(weight|bias)", name)
        if match:  # query, key and value in one
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                renamed[f"{match[1]}{letter}_proj.{match[2]}"] = part
        else:
            renamed[name] = value
    renamed.setdefault(VERSION, torch.tensor([3.0]))
    return renamed


def name_heads_as_in_files(model: Any, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    """Rename the parameters of a model's heads to their names in files, in place: torch's hook after `state_dict`.

    Example: heads.mnli.dense.weight -> classification_heads.mnli.dense.weight
    """
    for name, kind in model.head_kinds.items():
        _rename(state, f"{prefix}heads.{name}.", f"{prefix}{kind}_heads.{name}.")


def name_heads_as_in_model(model: Any, state: dict[str, Any], prefix: str, *_others: Any) -> None:
    """Rename them back, in place: torch's hook before `load_state_dict`."""
    for name, kind in model.head_kinds.items():
        _rename(state, f"{prefix}{kind}_heads.{name}.", f"{prefix}heads.{name}.")


def _rename(state: dict[str, Any], old: str, new: str) -> None:
    for name in [name for name in state if name.startswith(old)]:
        state[new + name.removeprefix(old)] = state.pop(name)


def read_sizes(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Options of the model that its parameters determine, in any layout. A dimension may be missing.

    Example: roberta.base -> {"encoder_layers": 12, "encoder_embed_dim": 768, "encoder_ffn_embed_dim": 3072}
    """
    numbers = {match[1] for name in state if (match := re.search(r"\.sentence_encoder\.layers\.(\d+)\.", name))}
    sizes = {"encoder_layers": len(numbers)}
    ends = {"embed_tokens.weight": ("encoder_embed_dim", 1), "layers.0.fc2.weight": ("encoder_ffn_embed_dim", 1)}
    for name, value in state.items():
        for end, (option, axis) in ends.items():
            if name.endswith(f".sentence_encoder.{end}") and value.dim() == 2:
                sizes[option] = value.size(axis)
    return sizes


def norms_of(state: Mapping[str, Any]) -> dict[str, bool]:
    """The options of an encoder's places of norms, in any layout: the parameters say them, and saved options may not.

    Empty if there are no layers.
    """
    if not read_sizes(state)["encoder_layers"]:
        return {}
    ends = (".layernorm_embedding.weight", ".emb_layer_norm.weight")
    return {
        "encoder_normalize_before": any(name.endswith("sentence_encoder.layer_norm.weight") for name in state),
        "no_layernorm_embedding": not any(name.endswith(ends) for name in state),
    }


def positions_of(state: Mapping[str, Tensor]) -> Tensor:
    """The embeddings of positions, in any layout that fairseq's `roberta` has had."""
    table = next((value for name, value in state.items() if name.endswith("embed_positions.weight")), None)
    if table is None:
        raise ValueError("There are no position embeddings: this is not a checkpoint of a RoBERTa.")
    return table


def num_positions_of(state: Mapping[str, Any]) -> int:
    """Number of positions of a checkpoint's model; with rotary positions, the length of its training's blocks.

    Raises:
        ValueError: if the checkpoint does not say it.
    """
    task, saved = saved_options(state)
    has_table = any(name.endswith("embed_positions.weight") for name in state["model"])
    if has_table or saved.get("_name") not in OUR_MODELS:
        return len(positions_of(state["model"])) - ROWS_BEFORE_POSITIONS
    sources = ((saved, "max_positions"), (task, "max_positions"), (task, "tokens_per_sample"))
    number = next((options[name] for options, name in sources if options.get(name) is not None), None)
    if not isinstance(number, int) or number < 1:
        raise ValueError(
            f"max_positions of a checkpoint without position embeddings must be a whole number above 0, got {number!r}."
        )
    return number


def saved_options(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Saved options of the task and of the model, from either of fairseq's formats.

    `_name` is the name of the task or of the model. The values come unchecked from the file: check them before use.
    """
    args = state.get("args")
    if args is not None:  # until 2020; fairseq also reads these first
        options = _as_dict(args)
        return {**options, "_name": options.get("task")}, {**options, "_name": options.get("arch")}
    config = _as_dict(state.get("cfg"))
    return _as_dict(config.get("task")), _as_dict(config.get("model"))


def _as_dict(options: Any) -> dict[str, Any]:
    if isinstance(options, argparse.Namespace):
        return dict(vars(options))
    return {str(name): options[name] for name in options} if isinstance(options, Mapping) else {}


logger = logging.getLogger(__name__)

SEGMENTS = "encoder.sentence_encoder.segment_embeddings.weight"
LM_MATRIX = "encoder.lm_head.weight"
_SEQUENCE_HEAD = re.compile(r"encoder\.(?!lm_head\.)([a-z0-9_]+_head)\.")


def check_sizes(model: HasHeads, state: dict[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary or another number of positions, which torch would report as shapes."""
    model_state = model.state_dict()
    if TOKENS in state and len(state[TOKENS]) != len(model_state[TOKENS]):
        raise ValueError(
            f"The checkpoint has a vocabulary of {len(state[TOKENS]):,} symbols, and the data one of "
            f"{len(model_state[TOKENS]):,}: make the data with the tokenizer and the dict.txt of that model."
        )
    if TOKENS in state and (POSITIONS in state) != (POSITIONS in model_state):
        kinds = ("learned", "rotary") if POSITIONS in state else ("rotary", "learned")
        raise ValueError(
            f"The checkpoint has {kinds[0]} positions, and this model {kinds[1]} ones: give --position-encoding "
            f"{kinds[0]}."
        )
    if POSITIONS in state and len(state[POSITIONS]) != len(model_state[POSITIONS]):
        theirs, ours = (len(each[POSITIONS]) - ROWS_BEFORE_POSITIONS for each in (state, model_state))
        raise ValueError(
            f"The checkpoint has {theirs} positions, and this model {ours}: give --max-positions {theirs}."
        )


def sequence_head_of(name: str) -> str:
    """The head for sequences, trained beside the masked LM, to which a parameter belongs; empty for other parameters.

    Example: "encoder.order_head.dense.weight"  ->  "order_head"
    """
    match = _SEQUENCE_HEAD.match(name)
    return match[1] if match else ""


def reconcile_sequence_heads(model: HasHeads, state: dict[str, Any]) -> None:
    """Leave out heads for sequences that only the checkpoint has, and begin heads anew that only the model has."""
    model_state = model.state_dict()
    theirs, ours = ({head for name in each if (head := sequence_head_of(name))} for each in (state, model_state))
    for name in [name for name in state if sequence_head_of(name) in theirs - ours]:
        del state[name]
    state.update({name: value for name, value in model_state.items() if sequence_head_of(name) in ours - theirs})
    for head in sorted(theirs - ours):
        logger.info(f"the checkpoint's {head} is left out: this model has none")
    for head in sorted(ours - theirs):
        logger.info(f"the checkpoint has no {head}: this model's begins untrained")


def reconcile_segments(model: HasHeads, state: dict[str, Any]) -> None:
    """Make the checkpoint `state` fit a model with or without segment embeddings.

    Changes `state` in place, and logs the parts that are left out or begin with fresh weights. A model that takes
    segments gets the checkpoint's.
    """
    encoder = model.encoder.sentence_encoder
    if SEGMENTS in state and model.takes_segments and encoder.segment_embeddings is None:
        segments = nn.Embedding(len(state[SEGMENTS]), model.cfg.encoder_embed_dim)
        encoder.segment_embeddings = segments.to(model.encoder.lm_head.bias)  # its device and type
    model_state = model.state_dict()
    if SEGMENTS in state and SEGMENTS not in model_state:
        logger.info(
            "the checkpoint has segment embeddings and this model has none: "
            + merge_segments(state, is_tied=not model.cfg.untie_weights_roberta)
        )
    elif SEGMENTS in model_state and SEGMENTS not in state:
        state[SEGMENTS] = model_state[SEGMENTS] * 0.0
        logger.info("the checkpoint has no segment embeddings: this model's begin at zero")


def merge_segments(state: dict[str, Any], *, is_tied: bool) -> str:
    """Turn a state dict, in place, into one of a model without segments: all tokens are of the first. Return how."""
    first, name = state.pop(SEGMENTS)[0], POSITIONS if POSITIONS in state else TOKENS
    changed = state[name].clone()
    # Added to all rows of the LM head's matrix, it changes all logits alike, and so no probability
    changed[ROWS_BEFORE_POSITIONS if name == POSITIONS else 0 :] += first.to(changed.dtype)
    if LM_MATRIX in state and name == TOKENS and is_tied:
        state[LM_MATRIX] = changed
    state[name] = changed
    where = "positions" if name == POSITIONS else "tokens"
    return f"the first segment's is added to the {where}, the second's is left out"


OUR_MODELS = ("fast_roberta", *ARCHITECTURES)
FAIRSEQ_MODELS = ("roberta", "roberta_base", "roberta_large", "roberta_prenorm", "xlm")

_COUNTS = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "quant_noise_pq_block_size",
)
_NUMBERS = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "pooler_dropout",
    "layer_norm_eps",
    "encoder_layerdrop",
    "quant_noise_pq",
    "quant_noise_scalar",
)
_SWITCHES = (
    "untie_weights_roberta",
    "encoder_normalize_before",
    "layernorm_embedding",
    "no_layernorm_embedding",
    "spectral_norm_classification_head",
)
_NAMES = ("activation_fn", "pooler_activation_fn")
_SHARING = ("share_layers", "share_parts")
_KEPT = (*_COUNTS, *_NUMBERS, *_SWITCHES, *_NAMES, *_SHARING, *SWITCHES)
# Options of fairseq's RoBERTa and of the encoder below it; the known ones are of training, or the weights say them.
FAIRSEQ: Table = {
    **dict.fromkeys(_KEPT, USED),
    **known("""
        max_positions max_source_positions load_checkpoint_heads encoder_layers_to_keep checkpoint_activations
        offload_activations min_params_to_wrap relu_dropout mha_reg_scale_factor ffn_reg_scale_factor mha_heads_to_keep
        ffn_blocks_to_remove
    """),
    **dict.fromkeys(("encoder_learned_pos", "no_scale_embedding"), only(True, None)),
    **dict.fromkeys(
        ("no_token_positional_embeddings", "adaptive_input", "cross_self_attention", "d2v2_multi"), only(False, None)
    ),
    "encoder_xformers_att_config": only(None),
}
_DEFAULT_NAMES = {"activation_fn": "gelu", "pooler_activation_fn": "tanh"}  # of fairseq's roberta


class ModelOnlyTask(FairseqTask):  # type: ignore[misc]
    """The part of a task that building a model needs: a dictionary and a number of positions."""

    num_segments = 0

    def __init__(self, dictionary: Any, max_positions: int) -> None:
        super().__init__(None)
        self._dictionary, self._max_positions = dictionary, max_positions

    @property
    def source_dictionary(self) -> Any:
        """fairseq's dictionary."""
        return self._dictionary

    @property
    def target_dictionary(self) -> Any:
        """fairseq's dictionary, as the target."""
        return self._dictionary

    def max_positions(self) -> int:
        """Number of positions of the model."""
        return self._max_positions


def model_arguments(state: Mapping[str, Any], path: Path) -> argparse.Namespace:
    """The checked options of a checkpoint's model, for `build_model` of a fairseq task.

    Raises:
        ValueError: if the model is not on the list, or an option has an invalid value.
    """
    _, saved = saved_options(state)
    name = saved.get("_name")
    if name is None:
        raise ValueError(f"{path} does not say which model it is, in args or cfg: it is damaged. {REMEDY}")
    if name not in (*OUR_MODELS, *FAIRSEQ_MODELS):
        raise ValueError(
            f"{path} asks for the model {name!r}, which is refused, because other models of fairseq can run text of "
            f"the file as code. Allowed are {', '.join((*OUR_MODELS, *FAIRSEQ_MODELS))}."
        )
    our_options = {field.name for field in fields(FastRobertaConfig)} if name in OUR_MODELS else None
    # Until 2020 the options of all parts of a training are in one place; no others of them describe the model.
    of_model = {option: value for option, value in saved.items() if option in FAIRSEQ}
    check_fields(of_model, FAIRSEQ, path, remedy="Use it with fairseq alone.")
    options = {
        option: checked(path, option, saved[option])
        for option in _KEPT
        if saved.get(option) is not None and (our_options is None or option in our_options)
    }
    sizes = read_sizes(state["model"])
    for option, size in sizes.items():  # before a model of a billion layers is built
        if options.get(option, size) != size:
            raise ValueError(
                f"{path}: the parameters do not fit the model: {option} is {options[option]}, and they have {size}."
            )
    num_positions = num_positions_of(state)
    if our_options is not None:
        try:
            read_config(argparse.Namespace(**{**options, **sizes}), max_positions=num_positions)
        except ValueError as error:
            raise ValueError(f"{path}: its options do not describe a model. {error} {REMEDY}") from error
    return argparse.Namespace(arch=name, max_positions=num_positions, **options)


def architecture(state: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `fast_roberta` that describe the model of a checkpoint, of any year.

    `layer_norm_eps`, `untie_weights_roberta`, the places of the norms, the shared layers and the `SWITCHES` are there
    if not the defaults.

    Example: {"encoder_layers": 12, "encoder_embed_dim": 768, ..., "activation_fn": "gelu"}
    """
    try:
        parameters = from_older_fairseq(state["model"])
        sizes = {
            "encoder_layers": read_sizes(parameters)["encoder_layers"],
            "encoder_embed_dim": parameters[TOKENS].size(1),
            "encoder_ffn_embed_dim": parameters["encoder.sentence_encoder.layers.0.fc2.weight"].size(1),
            "max_positions": num_positions_of({**state, "model": parameters}),
        }
    except KeyError as error:
        raise ValueError(f"This is not a checkpoint of a RoBERTa in fairseq's layout: {error} is missing.") from error
    except (TypeError, AttributeError, IndexError, RuntimeError, ValueError) as error:  # parameters of odd shapes
        raise ValueError(f"This is not a checkpoint of a RoBERTa in fairseq's layout: {error}.") from error
    _, kept = saved_options(state)
    if "encoder_attention_heads" not in kept:
        raise ValueError("The checkpoint does not say its number of attention heads (encoder_attention_heads).")
    num_heads = kept["encoder_attention_heads"]
    if not isinstance(num_heads, int) or num_heads < 1:
        raise ValueError(f"encoder_attention_heads of the checkpoint must be a whole number, got {num_heads!r}.")
    activations = {name: kept.get(name) or default for name, default in _DEFAULT_NAMES.items()}
    for name, value in activations.items():
        if value not in ACTIVATIONS:
            raise ValueError(f"{name} of the checkpoint must be one of {', '.join(ACTIVATIONS)}, got {short(value)}.")
    eps = kept.get("layer_norm_eps", FastRobertaConfig.layer_norm_eps)
    if not isinstance(eps, float) or not 0.0 < eps <= 1.0:
        raise ValueError(f"layer_norm_eps of the checkpoint must be a number above 0, at most 1, got {eps!r}.")
    names = (name for name in (*_SHARING, *SWITCHES) if kept.get(name))
    ours = {name: checked(Path("The checkpoint"), name, kept[name]) for name in names}
    others = {
        "encoder_normalize_before": FINAL_NORM in parameters,
        "no_layernorm_embedding": EMBEDDING_NORM not in parameters,
        "layer_norm_eps": eps,
        **ours,
        "untie_weights_roberta": bool(kept.get("untie_weights_roberta")),
    }
    others = {name: value for name, value in others.items() if value != getattr(FastRobertaConfig, name)}
    options = {**sizes, "encoder_attention_heads": num_heads, **activations, **others}
    assert options.keys() <= {*ARCHITECTURE}
    return options


def model_options(state: Mapping[str, Any]) -> dict[str, str]:
    """`architecture` as options of fairseq-train, without leading dashes.

    Example: {"arch": "fast_roberta", "encoder-layers": "12", "encoder-embed-dim": "768", ...}
    """
    texts = {name: "true" if value is True else str(value) for name, value in architecture(state).items()}
    return {"arch": "fast_roberta", **{name.replace("_", "-"): text for name, text in texts.items()}}


def initial_options(state: Mapping[str, Any]) -> dict[str, str]:
    """How the pretraining of a checkpoint drew its initial weights, as options of fairseq-train except defaults.

    Example: {"init-std": "width", "init-attention": "neighbors", "zero-init-residual": "true"}
    """
    _, saved = saved_options(state)
    if saved.get("_name") not in OUR_MODELS:
        return {}
    defaults = FastRobertaConfig()
    options: dict[str, str] = {}
    for name in INITIAL:
        text, default = (str(getattr(each, "name", each)) for each in (saved.get(name), getattr(defaults, name)))
        if saved.get(name) is not None and text != default:
            options[name.replace("_", "-")] = text.lower() if saved[name] is True else text
    if options.get("init-attention") == "counts":  # of a pretraining's text, which other trainings do not have
        del options["init-attention"]
        options |= {"init-attention": "neighbors"} if has_position_limit(saved) else {}
    return options


def num_symbols(state: Mapping[str, Any]) -> int:
    """Vocabulary size of such a checkpoint, special symbols included."""
    return len(from_older_fairseq(state["model"])[TOKENS])


def build_model(state: Mapping[str, Any], path: Path, *, dictionary: Any) -> nn.Module:
    """Build the checkpoint's model with its parameters and heads, in evaluation mode, on the CPU."""
    arguments = model_arguments(state, path)
    arguments.load_checkpoint_heads = True
    task = ModelOnlyTask(dictionary, arguments.max_positions)
    task.num_segments = num_segments_of(state)
    on_meta = torch.device("meta") if arguments.arch in OUR_MODELS else nullcontext()
    with on_meta, NoInitialization():  # random numbers on the meta device make torch import its compiler, for seconds
        model: nn.Module = task.build_model(arguments, from_checkpoint=True)
    assign_parameters(model, state, path)
    return model.eval()


def num_segments_of(state: Mapping[str, Any]) -> int:
    """Segment embeddings of a checkpoint's model."""
    return len(state["model"].get(SEGMENTS, ()))


def num_segments_in(path: Path) -> int:
    """The same for a checkpoint file, of whose weights only files of torch before 1.6 are read; 0 for a damaged one,
    which loading reports.
    """
    try:
        return num_segments_of(read_tensors(path, advice=REMEDY, is_mapped=zipfile.is_zipfile(path)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0


def load_parameters(model: nn.Module, state: Mapping[str, Any], path: Path) -> None:
    """Copy the checkpoint's parameters into a model."""
    with _naming(path):
        model.load_state_dict(dict(state["model"]))


_RANDOM: set[Any] = {torch.Tensor.normal_, torch.Tensor.uniform_}
_RANDOM |= {nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_uniform_}


class NoInitialization(TorchFunctionMode):
    """While entered, models are built without random weights, in half the time; parameters are replaced later."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Skip functions that fill a tensor with random numbers."""
        if function in _RANDOM:
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


def assign_parameters(model: nn.Module, state: Mapping[str, Any], path: Path) -> None:
    """Let the checkpoint's tensors, in fp32, be the parameters of a model, which may be on torch's meta device.

    Raises:
        ValueError: if they do not belong to such a model.
    """
    tensors = dict(state["model"])
    with _naming(path):
        with NoInitialization():
            model.upgrade_state_dict(tensors)  # type: ignore[operator]  # older names; heads
        shared = aliases(model.named_parameters(remove_duplicate=False))
        in_fp32 = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
        # Not fairseq's own method, which has no `assign`; besides the names, it only prunes layers.
        nn.Module.load_state_dict(model, in_fp32, assign=True)
    for first, *others in shared:  # the LM head's matrix is the embeddings' matrix
        for other in others:
            module, _, attribute = other.rpartition(".")
            setattr(model.get_submodule(module), attribute, model.get_parameter(first))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors of torch's loading, in a sentence that names the file."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"{path}: the parameters do not fit the model. {' '.join(lines[:3])} {REMEDY}") from error


def checked(path: Path, option: str, value: Any) -> int | float | bool | str:
    """The value, if it is valid for this option; `path` is of its file, for the message."""
    if option in _NAMES:
        allowed = utils.get_available_activation_fns()
        is_right, wanted = isinstance(value, str) and value in allowed, f"one of {', '.join(allowed)}"
    elif option in _SWITCHES:
        is_right, wanted = isinstance(value, bool | int), "true or false"
    elif option in _SHARING:  # what the number of layers allows is checked with the other options
        value = str(value)
        allowed = PARTS if option == "share_parts" else ("none", "all")
        is_right = value in allowed or (option == "share_layers" and bool(re.fullmatch(r"groups:\d+", value)))
        wanted = f"one of {', '.join(allowed)}" + (" and groups:N" if option == "share_layers" else "")
    elif option in SWITCHES:  # as above: limits are checked with the other options
        item = SWITCHES[option]
        if choices := choices_of(item, item.type):
            value = str(value)
            is_right, wanted = value in choices, f"one of {', '.join(choices)}"
        else:
            is_whole = float not in (item.type, *get_args(item.type))
            is_right = isinstance(value, int if is_whole else int | float)
            if is_right and item.type is not bool:
                is_right = not isinstance(value, bool) and abs(value) <= sys.float_info.max
            value = float(value) if is_right and not is_whole else value
            wanted = "true or false" if item.type is bool else f"a {'whole ' if is_whole else ''}number"
    elif option in _COUNTS:
        is_right, wanted = isinstance(value, int) and value > 0, "a whole number above 0"
    else:
        is_right, wanted = isinstance(value, int | float) and 0 <= value <= 1, "a number from 0 to 1"
    if not is_right:
        raise ValueError(f"{path}: the option {option} of the model must be {wanted}, got {str(value)[:80]!r}.")
    return value  # type: ignore[no-any-return]
