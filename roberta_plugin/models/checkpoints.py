"""A checkpoint -> its model, built only from the classes and options listed here; `checkpoint_files.py` reads the file.

fairseq builds any registered model, task, criterion or BPE that a checkpoint names, and some of them `eval` strings of
its options: wav2vec2's conv_feature_layers, fconv's encoder_layers, and xformers_att_config, which fairseq's own
roberta passes to its attention. So a file that torch reads safely can still run code. Therefore we accept only listed
models and listed options, each a number, a switch or the name of an activation, and ignore everything else.

fairseq takes the architecture from the command line and does not compare it with the checkpoint until torch refuses the
shapes. Here sizes come from the parameters (`state_dicts.py`); the number of heads and the activations come from the
saved options.
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
from torch import nn
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
from roberta_plugin.models.sharing import PARTS, aliases
from roberta_plugin.models.state_dicts import (
    EMBEDDING_NORM,
    FINAL_NORM,
    ROWS_BEFORE_POSITIONS,
    SEGMENTS,
    TOKENS,
    from_older_fairseq,
    positions_of,
    read_sizes,
)
from roberta_plugin.moved import find_former_name
from roberta_plugin.settings import choices_of, short


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


def __getattr__(name: str) -> Any:
    """Former names."""
    return find_former_name(__name__, name)
