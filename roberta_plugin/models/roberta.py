"""The registered model `fast_roberta` and its sizes: config -> encoder -> heads, in fairseq's terms.

`roberta_plugin.register` gives the class its `from_pretrained`, which opens a `RobertaHub`.

State dicts have the names of fairseq's `roberta`: each model loads the checkpoints of the other.

Shapes: B blocks, T positions, S sequences (B, or as many as a packed row has), D model dimension, Q and M predicted
positions of a block and of the batch, V vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from fairseq.models import FairseqEncoderModel, register_model, register_model_architecture
from torch import Tensor, nn

from roberta_plugin.models.adapters import reconcile_adapters
from roberta_plugin.models.attention import check_agreement, describe_choice, named_backend
from roberta_plugin.models.attention_kernels import MAX_DIM, is_exact
from roberta_plugin.models.compiling import (
    Compiled,
    check_compiler,
    compile_layers,
    num_graphs,
    report_no_compiler,
)
from roberta_plugin.models.config import (
    ARCHITECTURES,
    FastRobertaConfig,
    check_start,
    init_std,
    read_config,
    set_options,
)
from roberta_plugin.models.cpu import keep_fewer_shapes
from roberta_plugin.models.encoder import num_ffn_matrices
from roberta_plugin.models.flops import executed_flops, peak_flops, training_flops
from roberta_plugin.models.fp8 import check_device, use_fp8
from roberta_plugin.models.head_parameters import reconcile_heads
from roberta_plugin.models.heads import Head, pool_windows
from roberta_plugin.models.hopper_attention import PackedKernel
from roberta_plugin.models.initial_weights import attend_to_neighbors, initialize
from roberta_plugin.models.roberta_encoder import RobertaEncoder
from roberta_plugin.models.sharing import check_shared
from roberta_plugin.models.state_dicts import (
    check_sizes,
    from_older_fairseq,
    name_heads_as_in_files,
    name_heads_as_in_model,
    reconcile_segments,
    reconcile_sequence_heads,
)
from roberta_plugin.registry import HEADS

logger = logging.getLogger(__name__)

# Entries of the batches of fairseq's tasks that an encoder does not need.
UNUSED = ("src_lengths", "src_id", "prev_output_tokens")


def translate(model: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments of `FastRobertaModel.forward` from those that fairseq's tasks and criterions give to its `roberta`.

    Its criterions name a head as `classification_head_name`, with a redundant `features_only`.

    Raises:
        ValueError: if a call names two heads.
    """
    ours = {name: value for name, value in keywords.items() if name not in UNUSED}
    name = ours.pop("classification_head_name", None)
    if name is not None:
        if ours.get("head") is not None:
            raise ValueError(f"head={ours['head']!r} and classification_head_name={name!r} are two heads: give one.")
        ours["head"] = name
        ours.pop("features_only", None)
    return arguments, ours


def check_request(
    head: str | None,
    reads: str | None,
    *,
    features_only: bool,
    return_all_hiddens: bool,
    masked_tokens: Tensor | None,
    predicted: Mapping[str, Any] | None,
    pooled: Mapping[str, Any] | None,
    windows: Mapping[str, Any] | None,
) -> None:
    """Refuse arguments of `FastRobertaModel.forward` that contradict each other; `reads` is what the head reads."""
    results = {
        "head": head is not None,
        "features_only": features_only,
        "masked_tokens": masked_tokens is not None,
        "predicted": predicted is not None and reads != "places",
        "pooled": pooled is not None,
    }
    if sum(results.values()) > 1:
        names = " and ".join(name for name, is_asked in results.items() if is_asked)
        raise ValueError(f"{names} ask for different results of the same call: give one of them.")
    if reads == "places" and predicted is None:
        raise ValueError(f"The head {head!r} reads places: give `predicted`, their positions.")
    if return_all_hiddens and predicted is not None:
        raise ValueError("return_all_hiddens needs all positions, and predicted gives some: leave one out.")
    if windows is not None and (reads != "first" or return_all_hiddens):
        raise ValueError("Windows go with a classification head, and without return_all_hiddens: leave one out.")


def _tokens_per_sample(task: Any) -> int | None:
    """--tokens-per-sample, for fairseq tasks without max_positions, such as multilingual_masked_lm."""
    options = getattr(task, "cfg", None) or getattr(task, "args", None)  # older tasks have args only
    return getattr(options, "tokens_per_sample", None)


@register_model("fast_roberta", dataclass=FastRobertaConfig)
class FastRobertaModel(FairseqEncoderModel):  # type: ignore[misc]
    """RoBERTa (Liu et al. 2019)."""

    supports_packing = True  # forward takes `packing`: task roberta_masked_lm asks for this
    supports_sequence_heads = True  # forward takes `segments` and returns `sequence_logits`
    computes_masked_lm_loss = True  # forward takes `predicted`: criterion roberta_masked_lm asks for this
    check_start = staticmethod(check_start)
    takes_segments = False  # load the checkpoint's segment embeddings (for inference only)

    def __init__(self, cfg: FastRobertaConfig, encoder: RobertaEncoder) -> None:
        super().__init__(encoder)
        self.cfg = cfg
        self.heads = nn.ModuleDict()
        self.apply(partial(initialize, std=init_std(cfg)))
        if cfg.zero_init_residual:
            encoder.sentence_encoder.silence_sublayers()
        if str(cfg.init_attention) == "neighbors":
            attend_to_neighbors(encoder.sentence_encoder, std=init_std(cfg))
        self._is_in_training = self._describes_attention = False
        self.compiled: Compiled | None = None
        self.register_forward_pre_hook(translate, with_kwargs=True)
        self.register_state_dict_post_hook(name_heads_as_in_files)
        self.register_load_state_dict_pre_hook(name_heads_as_in_model)
        if cfg.attention_window is not None and cfg.attention_window // 2 >= encoder.max_positions() - 1:
            logger.warning(
                f"--attention-window {cfg.attention_window} reaches over whole blocks of {encoder.max_positions()} "
                "positions: all layers attend to all positions."
            )
        if cfg.fp8_products:
            use_fp8(encoder.sentence_encoder.layers)
        if cfg.compile_layers and cfg.checkpoint_activations:
            # torch ends a recomputation early by an exception, which looks like a failure of the compiler.
            logger.warning(
                "--compile-layers has no effect with --checkpoint-activations: layers run as they are, correct but "
                "slower. Leave one of them out."
            )
        elif cfg.compile_layers:
            self.compile_parts()

    def compile_parts(self, *, backend: str = "inductor") -> None:
        """Compile the layers, and on a GPU embeddings, LM head and loss."""
        PackedKernel.keep_out_of_graphs()
        encoder = self.encoder.sentence_encoder
        self.compiled = compile_layers(dict.fromkeys(encoder.layers), backend=backend)
        for part in (encoder, self.encoder.lm_head):
            part.backend, part.compiled = backend, self.compiled
            self.compiled.modules.append(part)

    @classmethod
    def check_options(cls, options: Any) -> None:
        """Refuse options that do not describe a model, before the task sets its number of positions."""
        read_config(options, max_positions=1)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> FastRobertaModel:
        """Build the model for the task's vocabulary; without --max-positions, for the task's length."""
        cfg = read_config(args, max_positions=task.max_positions() or _tokens_per_sample(task))
        encoder = RobertaEncoder(
            cfg,
            task.source_dictionary,
            num_segments=getattr(task, "num_segments", 0),
            sequence_heads=getattr(task, "sequence_heads", {}),
        )
        return cls(cfg, encoder)

    def forward(
        self,
        src_tokens: Tensor,
        *,
        head: str | None = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        predicted: Mapping[str, Any] | None = None,
        pooled: Mapping[str, Any] | None = None,
        has_padding: bool | None = None,
        packing: Mapping[str, Any] | None = None,
        segments: Tensor | None = None,
        windows: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Ids -> (logits, features or the loss, {"inner_states": ...}).

        Without options the result is the logits (B, T, V); one of these changes it:

            head             the output of the head of that name (`models/heads.py`); of a classification head, the
                             padding of a packed row may add some rows at the end
            features_only    features (B, T, D)
            masked_tokens    logits of these positions only (M, V)
            predicted        the loss ()
            pooled           a vector for each text (B, D)

        With heads for sequences, the loss and the logits come with "sequence_logits" in the second result, {task:
        logits (B, C)}; then the first entry of `predicted` for each block must be its <s>.

        Called as a module, the model also takes the arguments of fairseq's tasks and criterions (`translate`).

        Args:
            src_tokens: ids (B, T), each row beginning with <s>, padded on the right.
            head: name of a head.
            features_only: whether to return features.
            return_all_hiddens: also return the embeddings and each layer's output as inner_states, each (T, B, D) as in
                fairseq.
            masked_tokens: bool (B, T).
            predicted: {"positions" (B, Q), "labels" (B, Q)} and, in a packed row, {"cu_seqlens" (S + 1,),
                "max_seqlen"}: the loss is the summed cross-entropy of the labels that are not <pad>, in nats and fp32.
                With a head that reads places: the `places` of `RobertaEncoder.place_features`, and what the head takes.
            pooled: see `RobertaEncoder.vectors`; takes no other layout.
            has_padding: whether a row is padded; None looks at the tokens, which costs a device-to-host sync.
            packing: {"positions" (1, T), "cu_seqlens" (S + 1,), "max_seqlen"}: the row holds S sequences end to end.
            segments: 0 for the first text of a pair and 1 for the second (B, T); None: as `encoder.segments_of_pairs`.
            windows: {"first": Tensor, "pooling": "mean" or "max"}: a classification head reads the pooled features of
                all windows of a document, and has a row for each document (`heads.pool_windows`).

        Raises:
            ValueError: if two results are asked for, there is no such head, or its input is missing.
        """
        if self._describes_attention:
            self._describe_attention(src_tokens, packing)
        chosen: Any = None if head is None else self._head(head)
        check_request(
            head,
            None if chosen is None else chosen.reads,
            features_only=features_only,
            return_all_hiddens=return_all_hiddens,
            masked_tokens=masked_tokens,
            predicted=predicted,
            pooled=pooled,
            windows=windows,
        )
        layout = {"has_padding": has_padding, "packing": packing, "segments": segments}
        if pooled is not None:
            return self.encoder.vectors(src_tokens, pooled), {"inner_states": None}
        if chosen is not None and chosen.reads != "all" and not return_all_hiddens:
            return self._read_some(chosen, src_tokens, predicted, windows, layout), {"inner_states": None}
        if predicted is not None:
            return self.encoder.masked_lm_loss(src_tokens, predicted, **layout)  # type: ignore[no-any-return]
        features, extra = self.encoder(src_tokens, return_all_hiddens=return_all_hiddens, **layout)
        if chosen is not None:
            return chosen(features), extra
        if features_only:
            return features, extra
        extra |= self.encoder.sequence_logits(features, packing or {})
        return self.encoder.lm_head(features, masked_tokens=masked_tokens), extra

    def _read_some(
        self,
        head: Head,
        src_tokens: Tensor,
        places: Mapping[str, Any] | None,
        windows: Mapping[str, Any] | None,
        layout: Mapping[str, Any],
    ) -> Any:
        """The outputs of a head that reads features of some positions only: of places, or of each <s>."""
        if head.reads == "places":
            return head(self.encoder.place_features(src_tokens, places, **layout), places)
        if windows is None:
            return head(self.encoder.first_features(src_tokens, **layout))
        features = self.encoder.first_features(src_tokens, in_parts=not self.training, **layout)
        return head(pool_windows(features, **windows))

    def position_features(self, src_tokens: Tensor, positions: Tensor, *, has_padding: bool | None = None) -> Tensor:
        """Features (B, Q, D) of the `positions` (B, Q) of ids (B, T); the last layer computes no others."""
        features: Tensor = self.encoder.sentence_encoder(
            src_tokens, has_padding=has_padding, predicted={"positions": positions}
        )[0]
        return features

    def _head(self, name: str) -> Any:
        if name not in self.heads:
            raise ValueError(f"The model has no head called {name!r}; it has {', '.join(self.heads) or 'none'}.")
        return self.heads[name]

    def training_flops(self, **counts: Any) -> float:
        """FLOPs of a training step, by its num_tokens, num_pairs and so on; see `flops.training_flops`."""
        return training_flops(**self._sizes, **counts)

    def executed_flops(self, **counts: int) -> float:
        """FLOPs that this model executes for that step; see `flops.executed_flops`."""
        return executed_flops(
            **{**self._sizes, **counts},
            last_is_local=self.encoder.sentence_encoder.positions.is_local(self.cfg.encoder_layers - 1),
            recomputes=self.cfg.checkpoint_activations,
        )

    @property
    def _sizes(self) -> dict[str, Any]:
        return {
            "num_layers": self.cfg.encoder_layers,
            "dim": self.cfg.encoder_embed_dim,
            "ffn_dim": self.cfg.encoder_ffn_embed_dim,
            "ffn_matrices": num_ffn_matrices(str(self.cfg.feed_forward)),
            "vocab_size": self.encoder.lm_head.bias.numel(),
            "num_local_layers": self.encoder.sentence_encoder.positions.num_local(self.cfg.encoder_layers),
            "window": self.cfg.attention_window or 0,
            "sequence_classes": [head.num_classes for head in self.encoder.sequence_heads],
        }

    @property
    def has_position_limit(self) -> bool:
        """True if no text can be longer than the positions; rotary positions have no limit."""
        return not self.encoder.sentence_encoder.positions.is_rotary

    def num_compiled_graphs(self) -> int:
        """Graphs that torch.compile has made in this process so far; the number grows while shapes change."""
        return num_graphs() if self.cfg.compile_layers else 0

    def peak_flops(self) -> float:
        """Peak FLOP/s of the parameters' device in their type; 0 if unknown."""
        return peak_flops(self.encoder.lm_head.bias.device, self.encoder.lm_head.bias.dtype)

    def prefers_packing(self, device: torch.device, dtype: torch.dtype) -> bool:
        """True if packed rows are faster here than padded batches, whose mask excludes flash attention on a GPU."""
        is_served = self.cfg.encoder_embed_dim // self.cfg.encoder_attention_heads <= MAX_DIM
        if is_served and not (backend := named_backend(self.cfg)).serves_padded:
            check_agreement(backend, device, dtype)
            return True
        return (
            str(self.cfg.attention_backend) == "auto"
            and is_served
            and is_exact(device, dtype, has_windows=self.cfg.attention_window is not None)
        )

    def set_epoch(self, epoch: int) -> None:
        """Called by our tasks before an epoch, when the model is where it trains."""
        weight = self.encoder.lm_head.bias
        if self.cfg.fp8_products:
            check_device(weight.device, weight.dtype, is_compiled=self.cfg.compile_layers)
        if not (backend := named_backend(self.cfg)).serves_padded:
            try:
                backend.assert_supported(weight.device, dropout_prob=self.cfg.attention_dropout)
            except RuntimeError as error:
                raise ValueError(str(error)) from None
        super().set_epoch(epoch)

    def set_num_updates(self, num_updates: int) -> None:
        """Called by fairseq's tasks before each step; the first call sets precision and memory of its products."""
        if not self._is_in_training:
            self._is_in_training = self._describes_attention = True
            keep_fewer_shapes()
            weight = self.encoder.lm_head.bias
            if self.cfg.compile_layers and self.compiled and (reason := check_compiler(weight.device, weight.dtype)):
                report_no_compiler(reason)
                self.compiled.undo()
            if str(self.cfg.matmul_precision) != "highest":
                torch.set_float32_matmul_precision(str(self.cfg.matmul_precision))

    def _describe_attention(self, src_tokens: Tensor, packing: Mapping[str, Any] | None) -> None:
        """Log once which attention backend serves the training's batches."""
        self._describes_attention = False
        weight, name = self.encoder.lm_head.bias, str(self.cfg.attention_backend)
        device, is_packed, heads = weight.device, packing is not None, self.cfg.encoder_attention_heads
        autocasts = torch.is_autocast_enabled(device.type)
        logger.info(
            describe_choice(
                name,
                device=device,
                dtype=torch.get_autocast_dtype(device.type) if autocasts else weight.dtype,
                dropout_prob=self.cfg.attention_dropout,
                max_seqlen=src_tokens.size(1) if packing is None else packing["max_seqlen"],
                is_packed=is_packed,
                num_heads=heads,
                head_dim=self.cfg.encoder_embed_dim // heads,
            )
        )

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """Logits -> probabilities or their logarithms, in fp32."""
        logits: Tensor = net_output[0].float()
        return logits.log_softmax(dim=-1) if log_probs else logits.softmax(dim=-1)

    @property
    def supported_targets(self) -> set[str]:
        """Required by fairseq: the targets are the input's own tokens."""
        return {"self"}

    def register_head(self, name: str, kind: str, **sizes: int | None) -> None:
        """Add a head called `name` with fresh weights, or replace it.

        `sizes` are arguments of its class: num_classes (and inner_dim) of classes, num_layers of a sentence head.
        """
        head_class = HEADS.load(kind, "head")
        if name in self.heads:
            logger.warning(f"the {self.heads[name].kind} head {name!r} is replaced by a new {kind} head, {sizes}")
        head = head_class(self.encoder, **sizes)
        head.apply(partial(initialize, std=init_std(self.cfg)))
        self.heads[name] = head

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **kwargs: Any
    ) -> None:
        """`register_head` for classes, by the name and arguments that fairseq's tasks know."""
        self.register_head(name, "classification", num_classes=num_classes, inner_dim=inner_dim)

    @property
    def head_kinds(self) -> dict[str, str]:
        """The kind of each head by its name."""
        return {name: head.kind for name, head in self.heads.items()}  # type: ignore[misc]

    @property
    def classification_heads(self) -> dict[str, nn.Module]:
        """Classification heads by name, where fairseq's criterions look for them."""
        return {name: self.heads[name] for name, kind in self.head_kinds.items() if kind == "classification"}

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Rename the parameters of any version of fairseq's `roberta` to ours and reconcile the heads, in place."""
        renamed = from_older_fairseq(state_dict)
        state_dict.clear()
        state_dict.update(renamed)
        check_sizes(self, state_dict)
        reconcile_adapters(self, state_dict)
        check_shared(self, state_dict, option=f"--share-layers {self.cfg.share_layers}")
        reconcile_segments(self, state_dict)
        reconcile_sequence_heads(self, state_dict)
        reconcile_heads(self, state_dict)


for _name, _options in ARCHITECTURES.items():
    register_model_architecture("fast_roberta", _name)(partial(set_options, options=_options))
