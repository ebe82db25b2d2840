"""Every option of the architecture, and the sizes it comes in."""

# No `from __future__ import annotations` here: fairseq makes options of the field types and cannot read strings.

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from torch import Tensor

from roberta_plugin.models.attention import BACKEND_NAMES, check_options
from roberta_plugin.models.encoder import GATES, NORMS
from roberta_plugin.models.fp8 import check_sizes
from roberta_plugin.models.sharing import PARTS, num_groups
from roberta_plugin.settings import check_values, flag, is_given, setting

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}
ATTENTION_BACKENDS = ChoiceEnum(["auto", *BACKEND_NAMES])
ACTIVATION_FNS = ChoiceEnum(sorted(ACTIVATIONS))
SHARED_PARTS = ChoiceEnum(list(PARTS))
POSITION_ENCODINGS = ChoiceEnum(["learned", "rotary"])
INITIAL_ATTENTION = ChoiceEnum(["random", "neighbors", "counts"])
FEED_FORWARDS = ChoiceEnum(["plain", *GATES])
NORM_KINDS = ChoiceEnum(list(NORMS))
GRADIENT_SUMS = ChoiceEnum(["half", "fp32"])
MATMUL_PRECISIONS = ChoiceEnum(["highest", "high", "medium"])

_ROTARY = {"position_encoding": ("rotary",)}


def model_setting(default: object, help_text: str, **more: Any) -> Any:
    """An option that describes the model: with another value, weights have another meaning, or no place.

    `more` may have, besides what `setting` takes,

        weights_fit          True if a pretraining may go on from a model with another value nevertheless, or a function
                             of the options of both, before and now, that returns this
        is_in_hugging_face   False if Hugging Face's RoBERTa does not have it
    """
    return setting(default, help_text, describes="model", **more)


def initial_setting(default: object, help_text: str, **more: Any) -> Any:
    """An option that draws the initial weights, and has no effect afterwards."""
    return setting(default, help_text, describes="initial weights", **more)


def switch(default: object, help_text: str, **more: Any) -> Any:
    """An option, off by default, by which an encoder departs from RoBERTa.

    To mark it so is enough for all that saves, resumes, opens and converts models: see `SWITCHES`.
    """
    return model_setting(default, help_text, is_switch=True, is_in_hugging_face=False, **more)


def has_position_limit(options: Mapping[str, Any]) -> bool:
    """False if a model of these options, by name, has no table of positions, so that it reads texts of any length."""
    return str(options.get("position_encoding")) != "rotary"


@dataclass
class FastRobertaConfig(FairseqDataclass):
    """Options of `fast_roberta`, named as fairseq's `roberta` names them; defaults are RoBERTa base (Table 9).

    What else others need to know of an option, its field says: see `setting`, `model_setting` and `switch`.
    """

    encoder_layers: int = model_setting(12, "number of layers", smallest=1)
    encoder_embed_dim: int = model_setting(768, "model dimension", smallest=1)
    encoder_ffn_embed_dim: int = model_setting(3072, "inner dimension of the feed-forward layers", smallest=1)
    encoder_attention_heads: int = model_setting(12, "number of attention heads", smallest=1, weights_fit=True)
    dropout: float = setting(0.1, "dropout after embeddings, attention and feed-forward", smallest=0, below=1)
    attention_dropout: float = setting(0.1, "dropout of the attention weights", smallest=0, below=1)
    activation_dropout: float = setting(0.0, "dropout inside the feed-forward layers", smallest=0, below=1)
    encoder_layerdrop: float = setting(
        0.0,
        "probability to leave out a layer in a training step (LayerDrop). Several ranks then need "
        "--find-unused-parameters, or --ddp-backend legacy_ddp",
        smallest=0,
        below=1,
    )
    pooler_dropout: float = setting(0.0, "dropout in classification and token heads", smallest=0, below=1)
    activation_fn: ACTIVATION_FNS = model_setting(  # type: ignore[valid-type]
        "gelu", "activation function of plain feed-forward layers and of the LM head", weights_fit=True
    )
    pooler_activation_fn: ACTIVATION_FNS = model_setting(  # type: ignore[valid-type]
        "tanh", "activation function of classification heads", weights_fit=True
    )
    share_layers: str = model_setting(
        "none", "layers with the same parameters: none, all, or groups:N of consecutive layers (ALBERT)"
    )
    share_parts: SHARED_PARTS = model_setting(  # type: ignore[valid-type]
        "all", "what --share-layers shares: whole layers, their attention, or their ffn", goes_with={"share_layers": ()}
    )
    encoder_normalize_before: bool = model_setting(
        False, "layer norm before each sublayer and after the last layer, instead of after each sublayer"
    )
    no_layernorm_embedding: bool = model_setting(
        False, "no layer norm after the embeddings; fairseq's roberta_prenorm is both options", is_in_hugging_face=False
    )
    no_first_attention_norm: bool = switch(
        False,
        "no norm before the attention of the first layer, whose input the norm of the embeddings has normalized "
        "(ModernBERT)",
        goes_with={"encoder_normalize_before": ()},
        excludes=("no_layernorm_embedding", "share_layers"),
    )
    norm: NORM_KINDS = switch(  # type: ignore[valid-type]
        "layer", "all norms of the model: layer norms, or rms, without mean and bias (Zhang and Sennrich 2019)"
    )
    no_norm_bias: bool = switch(False, "layer norms without bias (ModernBERT)", goes_with={"norm": ("layer",)})
    no_linear_bias: bool = switch(
        False,
        "no biases in the linear layers of the encoder and of the LM head, except the vocabulary's (ModernBERT)",
    )
    feed_forward: FEED_FORWARDS = switch(  # type: ignore[valid-type]
        "plain",
        "geglu and swiglu multiply GELU or SiLU of one product by another (Shazeer 2020): three matrices of "
        "--encoder-ffn-embed-dim, so 2/3 of that number is as large as plain",
    )
    qk_norm: bool = switch(
        False, "normalize the queries and keys of each head, with a learned scale (Henry et al. 2020; ViT-22B)"
    )
    init_std: str = initial_setting(
        "0.02",
        "standard deviation of the initial matrices and embeddings, or width: 1/sqrt(--encoder-embed-dim), "
        "which learns faster in small models. BERT and RoBERTa have 0.02",
    )
    init_attention: INITIAL_ATTENTION = initial_setting(  # type: ignore[valid-type]
        "random",
        "random: as BERT; neighbors: heads attend to tokens nearby; counts: embeddings, first layer and LM head, too, "
        "begin as counts of neighbors in the text: small models learn sooner",
    )
    zero_init_residual: bool = initial_setting(
        False,
        "the matrices that end each attention and feed-forward sublayer begin at 0, so that a layer begins as the "
        "identity, which helps small models with --init-attention neighbors, and harms them without",
    )
    layer_norm_eps: float = model_setting(
        1e-5,
        "added to the variance in layer norms; Hugging Face's own default is 1e-12",
        above=0,
        largest=1,
        weights_fit=True,
    )
    max_positions: Optional[int] = model_setting(
        None,
        "number of positions",
        default_text="the task's --tokens-per-sample",
        smallest=1,
        largest=10**6,
        weights_fit=lambda before, now: not (has_position_limit(before) or has_position_limit(now)),
    )
    position_encoding: POSITION_ENCODINGS = switch(  # type: ignore[valid-type]
        "learned", "learned: an embedding for each position; rotary: queries and keys turned by their positions (RoPE)"
    )
    rotary_base: float = switch(
        1e4,
        "of rotary positions: larger for longer texts (ModernBERT: 160000)",
        above=1,
        goes_with=_ROTARY,
        weights_fit=True,
    )
    rotary_base_local: Optional[float] = switch(
        None,
        "the same in layers with a local window (ModernBERT: 10000)",
        default_text="--rotary-base",
        above=1,
        goes_with={**_ROTARY, "attention_window": ()},
        weights_fit=True,
    )
    attention_window: Optional[int] = switch(
        None,
        "local attention: positions attend to half as many on either side, but in every "
        "--global-attention-every-th layer (ModernBERT: 128)",
        default_text="all positions",
        smallest=2,
        weights_fit=True,
    )
    global_attention_every: int = switch(
        3,
        "with --attention-window: the first layer, and every N-th from there, attend to all positions",
        smallest=1,
        goes_with={"attention_window": ()},
        weights_fit=True,
    )
    untie_weights_roberta: bool = model_setting(
        False,
        "give the LM head a separate output matrix instead of the embeddings",
        weights_fit=lambda before, now: not before["untie_weights_roberta"],  # the embeddings become that matrix
    )
    checkpoint_activations: bool = setting(
        False, "recompute each layer in the backward pass: less memory, a third more time", on_resume="free"
    )
    compile_layers: bool = setting(
        False,
        "compile the encoder's layers, and on a GPU embeddings, LM head and loss, with torch.compile: minutes at the "
        "start, faster steps on a GPU",
        on_resume="free",
    )
    fp8_products: bool = setting(
        False,
        "with --bf16 on an H100 or newer: products of all layers but the last in 8-bit floats, with a scale per "
        "row. Weights, checkpoints and validation do not change. Not measured yet: compare a loss curve",
        on_resume="free",
    )
    gradient_sum: GRADIENT_SUMS = setting(  # type: ignore[valid-type]
        "half",
        "sum the ranks' gradients under --bf16 and --fp16. half: in that type; fp32: rounded once, for 2 bytes more a "
        "parameter to send; worth it from some 64 GPUs on",
        on_resume="free",
    )
    attention_backend: ATTENTION_BACKENDS = setting(  # type: ignore[valid-type]
        "auto", "implementation of attention; auto chooses by device, dropout and batch", on_resume="free"
    )
    matmul_precision: MATMUL_PRECISIONS = setting(  # type: ignore[valid-type]
        "highest",
        "of matrix products in an fp32 training. highest: fp32; high: TF32 on a GPU that has it; medium: "
        "also bf16 on a CPU that has it, with sums in fp32. For the whole process",
    )
    load_checkpoint_heads: bool = setting(
        False, "take over the classification heads found in a checkpoint", on_resume="free"
    )


def _names(is_meant: Callable[[Mapping[str, Any]], bool]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(FastRobertaConfig) if is_meant(item.metadata))


ARCHITECTURE = _names(lambda has: has.get("describes") == "model")
"""Options that describe the model, by name."""
INITIAL = _names(lambda has: has.get("describes") == "initial weights")
"""Options that draw its initial weights."""
BEYOND_HUGGING_FACE = _names(lambda has: not has.get("is_in_hugging_face", True))
"""Options that Hugging Face's RoBERTa does not have."""
SWITCHES = {item.name: item for item in fields(FastRobertaConfig) if item.metadata.get("is_switch")}
"""Options that fairseq's `roberta` and Hugging Face's RoBERTa do not have, by name."""


def fitting_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> set[str]:
    """The options that may differ in a pretraining with the options `now` that goes on from a model of `before`."""
    rules = {item: item.metadata.get("weights_fit", False) for item in fields(FastRobertaConfig)}
    return {flag(item) for item, fits in rules.items() if (fits(before, now) if callable(fits) else fits)}


def given_switches(options: Any) -> list[str]:
    """The switches of a model of these `options`, by name, as the command line has them."""
    cfg = FastRobertaConfig(**{name: options[name] for name in SWITCHES if options.get(name) is not None})
    return [
        flag(item) if isinstance(item.default, bool) else f"{flag(item)} {getattr(cfg, name)}"
        for name, item in SWITCHES.items()
        if is_given(cfg, item)
    ]


def check_has_no_switch(options: Any, *, path: Path, other: str, instead: str) -> None:
    """Refuse a model of these `options` with switches where the format of the `other` model has none.

    `instead`, the formats that have them, ends the message.
    """
    if switches := given_switches(options):
        raise ValueError(
            f"{path} was trained with {', '.join(switches)}, which {other} cannot compute: use {instead}, or the "
            "checkpoint itself."
        )


# Layers, model dimension, feed-forward dimension, heads. base and large: the paper's Table 9. tiny, mini and
# small: the sizes of these names in Turc et al. 2019 ("Well-Read Students Learn Better"), table 1.
SIZES = {
    "tiny": (2, 128, 512, 2),
    "mini": (4, 256, 1024, 4),
    "small": (4, 512, 2048, 8),
    "base": (12, 768, 3072, 12),
    "large": (24, 1024, 4096, 16),
}
# Warner et al. 2024, arXiv 2412.13663, section 2.1, and the released config.json, for both sizes.
MODERNBERT = {
    "encoder_normalize_before": True,
    "no_first_attention_norm": True,
    "no_norm_bias": True,
    "no_linear_bias": True,
    "feed_forward": "geglu",
    "position_encoding": "rotary",
    "rotary_base": 160_000.0,
    "rotary_base_local": 10_000.0,
    "attention_window": 128,
    "global_attention_every": 3,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}


def sizes(layers: int, dim: int, ffn_dim: int, heads: int) -> dict[str, Any]:
    """Dimensions as options."""
    names = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")
    return dict(zip(names, (layers, dim, ffn_dim, heads), strict=True))


ARCHITECTURES: dict[str, dict[str, Any]] = {
    **{f"fast_roberta_{name}": sizes(*size) for name, size in SIZES.items()},
    # XLM-R (Conneau et al. 2020, table 12): the sizes of RoBERTa, with a vocabulary of 250,002 symbols as released.
    **{f"fast_xlmr_{name}": sizes(*SIZES[name]) for name in ("base", "large")},
    # Table 4 of its paper.
    "fast_modernbert_base": {**sizes(22, 768, 1152, 12), **MODERNBERT},
    "fast_modernbert_large": {**sizes(28, 1024, 2624, 16), **MODERNBERT},
}
"""--arch -> the options that it sets, except options that the user gives."""


def set_options(args: Any, options: dict[str, Any]) -> None:
    """Give `args` the options of an architecture wherever the user has not set them.

    fairseq gives a switch without a value as False, whether a user has set it or not.
    """
    for name, value in options.items():
        if getattr(args, name, None) is None or (value is True and not getattr(args, name)):
            setattr(args, name, value)


def read_config(args: Any, *, max_positions: int | None) -> FastRobertaConfig:
    """fairseq's options, in any of its forms, as a checked config."""
    options = {item.name: getattr(args, item.name, None) for item in fields(FastRobertaConfig)}
    cfg = FastRobertaConfig(**{name: value for name, value in options.items() if value is not None})
    cfg.max_positions = cfg.max_positions or max_positions
    if cfg.max_positions is None:
        raise ValueError("--max-positions is missing: the task does not say how long its sequences are.")
    check_config(cfg)
    return cfg


def check_config(cfg: FastRobertaConfig) -> None:
    """Refuse options that do not describe a model."""
    check_values(cfg)
    if cfg.encoder_embed_dim % cfg.encoder_attention_heads:
        raise ValueError(
            f"--encoder-embed-dim ({cfg.encoder_embed_dim}) must be a multiple of --encoder-attention-heads "
            f"({cfg.encoder_attention_heads})."
        )
    if cfg.attention_window is not None and cfg.attention_window % 2:
        raise ValueError(
            f"--attention-window must be even, half of it on either side of a position, got {cfg.attention_window}."
        )
    head_dim = cfg.encoder_embed_dim // cfg.encoder_attention_heads
    is_rotary = str(cfg.position_encoding) == "rotary"
    if is_rotary and head_dim % 2:
        raise ValueError(
            f"--position-encoding rotary turns pairs of dimensions, and heads of {head_dim} have no whole number of "
            "them: change --encoder-attention-heads or --encoder-embed-dim."
        )
    if is_rotary and str(cfg.init_attention) == "neighbors":
        raise ValueError(
            "--init-attention neighbors, as recipes have it, sets embeddings of positions, and --position-encoding "
            "rotary has none: give --init-attention counts or random."
        )
    if str(cfg.init_attention) == "counts":
        _check_room_for_counts(cfg, head_dim, is_rotary=is_rotary)
    if cfg.fp8_products:
        check_sizes(cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim)
    check_options(
        str(cfg.attention_backend),
        dropout_prob=cfg.attention_dropout,
        has_windows=cfg.attention_window is not None,
    )
    init_std(cfg)
    num_groups(cfg.share_layers, cfg.encoder_layers)


def _check_room_for_counts(cfg: FastRobertaConfig, head_dim: int, *, is_rotary: bool) -> None:
    """Refuse a model without the weights that --init-attention counts sets."""
    if num_groups(cfg.share_layers, cfg.encoder_layers) < cfg.encoder_layers:
        raise ValueError(
            "--init-attention counts gives the first layer other weights than the next ones, and --share-layers "
            "all the same: leave one of them out."
        )
    if not is_rotary and min(head_dim, cfg.encoder_embed_dim // 2) < 2:
        raise ValueError(
            "--init-attention counts makes positions of pairs of dimensions, and needs heads of two at least, and "
            f"two more for tokens: heads of {head_dim} of {cfg.encoder_embed_dim} are too few. Lower "
            "--encoder-attention-heads or raise --encoder-embed-dim."
        )
    if is_rotary and head_dim < 4:
        raise ValueError(
            "--init-attention counts tells rotary positions apart by two pairs of dimensions at least, and heads "
            f"of {head_dim} have fewer: lower --encoder-attention-heads or raise --encoder-embed-dim."
        )
    if cfg.no_layernorm_embedding and not cfg.encoder_normalize_before:
        raise ValueError(
            "--init-attention counts needs a norm in front of the first attention: leave out "
            "--no-layernorm-embedding, or add --encoder-normalize-before."
        )
    if is_rotary and cfg.no_linear_bias:
        raise ValueError(
            "--init-attention counts sets the biases of queries and keys where positions are rotary: leave out "
            "--no-linear-bias, or give --init-attention random."
        )


def check_start(options: Any, task: Any, *, has_start: bool) -> None:
    """Refuse initial weights that the class `task` does not make, unless the training starts with other ones."""
    is_meant = str(getattr(options, "init_attention", "")) == "counts" and not has_start
    if is_meant and not getattr(task, "begins_with_counts", False):
        raise ValueError(
            "--init-attention counts needs --task roberta_masked_lm, which counts its training text: give that, or "
            "--init-attention random."
        )


def init_std(cfg: FastRobertaConfig) -> float:
    """Standard deviation of the initial matrices and embeddings.

    Raises:
        ValueError: if --init-std is neither a number above 0 nor `width`.
    """
    text = str(cfg.init_std)
    if text == "width":
        return float(cfg.encoder_embed_dim**-0.5)
    try:
        std = float(text)
    except ValueError:
        std = math.nan
    if not 0.0 < std <= 1.0:
        raise ValueError(
            f"--init-std must be a number above 0, at most 1, or the word width, for 1/sqrt(--encoder-embed-dim), got "
            f"{text!r}."
        )
    return std
