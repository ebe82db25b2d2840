"""The registered model `fast_roberta` and its sizes: config -> encoder -> heads, in fairseq's words.

State dicts have the names of fairseq's `roberta`: either model loads what the other has saved.

Shapes: B blocks, T positions, D model dimension, Q and M predicted positions of a block and of
the batch, V vocabulary, C classes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderModel,
    register_model,
    register_model_architecture,
)
from torch import Tensor, nn

from .activations import ACTIVATIONS
from .attention_backends import choose_backend
from .checkpoint_heads import check_sizes, settle_heads
from .checkpoint_names import from_older_fairseq
from .config import SIZES, FastRobertaConfig, read_config, set_size
from .encoder import Layer, SentenceEncoder
from .flops import peak_flops, training_flops
from .heads import ClassificationHead, MaskedLMHead, SpanHead
from .initialization import initialize

logger = logging.getLogger(__name__)


class RobertaEncoder(FairseqEncoder):  # type: ignore[misc]
    """The sentence encoder with the masked-LM head on top."""

    def __init__(self, cfg: FastRobertaConfig, dictionary: Any) -> None:
        super().__init__(dictionary)
        self.cfg = cfg
        dim, activation = cfg.encoder_embed_dim, ACTIVATIONS[str(cfg.activation_fn)]
        layers = [
            Layer(
                dim,
                ffn_dim=cfg.encoder_ffn_embed_dim,
                num_heads=cfg.encoder_attention_heads,
                activation=activation,
                dropout_prob=cfg.dropout,
                attention_dropout_prob=cfg.attention_dropout,
                activation_dropout_prob=cfg.activation_dropout,
                attention_backend=str(cfg.attention_backend),
            )
            for _ in range(cfg.encoder_layers)
        ]
        self.sentence_encoder = SentenceEncoder(
            len(dictionary),
            dim=dim,
            pad_id=dictionary.pad(),
            max_positions=self.max_positions(),
            layers=layers,
            dropout_prob=cfg.dropout,
            checkpoint_activations=cfg.checkpoint_activations,
        )
        embeddings: Any = None if cfg.untie_weights_roberta else self.sentence_encoder.embed_tokens.weight
        self.lm_head = MaskedLMHead(dim, activation=activation, vocab_size=len(dictionary), weight=embeddings)

    def forward(
        self,
        src_tokens: Tensor,
        *,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        predicted: Mapping[str, Any] | None = None,
        first_only: bool = False,
        has_padding: bool | None = None,
        packing: Mapping[str, Any] | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """See `FastRobertaModel.forward`; with `first_only`, the features (S, 1, D) of each sequence's <s> alone."""
        if first_only:
            places = first_tokens(src_tokens, packing)
            features, _ = self.sentence_encoder(src_tokens, has_padding=has_padding, packing=packing, predicted=places)
            return features.reshape(-1, 1, features.size(-1)), {"inner_states": None}  # (B, Q, D) -> (S, 1, D)
        features, hidden = self.sentence_encoder(
            src_tokens,
            has_padding=has_padding,
            packing=packing,
            keep_hidden=return_all_hiddens,
            predicted=predicted,
        )
        if predicted is not None:
            return self.lm_head.loss(features, predicted["answers"], pad_id=self.sentence_encoder.pad_id), {}
        # fairseq's models hand these out with time first
        extra = {"inner_states": [states.transpose(0, 1) for states in hidden] if return_all_hiddens else None}
        if features_only:
            return features, extra
        return self.lm_head(features, masked_tokens=masked_tokens), extra

    def max_positions(self) -> int:
        """Tokens in a block at most."""
        assert self.cfg.max_positions is not None
        return self.cfg.max_positions


def _tokens_per_sample(task: Any) -> int | None:
    """The option of a task of fairseq's that has it and does not answer for it, as multilingual_masked_lm."""
    options = getattr(task, "cfg", None) or getattr(task, "args", None)  # older tasks have args alone
    return getattr(options, "tokens_per_sample", None)


def first_tokens(tokens: Tensor, packing: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where each sequence's <s> is, in the form of `predicted`: for them alone the last layer is computed."""
    if packing is None:
        return {"positions": tokens.new_zeros(len(tokens), 1)}
    edges = packing["edges"]  # (S + 1,)
    return {
        "positions": edges[None, :-1].long(),  # (S + 1,) -> (1, S)
        "edges": torch.arange(len(edges), dtype=edges.dtype, device=edges.device),
        "longest": 1,
    }


@register_model("fast_roberta", dataclass=FastRobertaConfig)
class FastRobertaModel(FairseqEncoderModel):  # type: ignore[misc]
    """RoBERTa (Liu et al. 2019)."""

    supports_packing = True  # forward takes `packing`: task roberta_masked_lm asks for this
    computes_masked_lm_loss = True  # forward takes `predicted`: criterion roberta_masked_lm asks for this

    def __init__(self, cfg: FastRobertaConfig, encoder: RobertaEncoder) -> None:
        super().__init__(encoder)
        self.cfg = cfg
        self.classification_heads = nn.ModuleDict()
        self.span_heads = nn.ModuleDict()
        self.apply(initialize)
        self._has_said_how = False
        if cfg.compile_layers:
            for layer in encoder.sentence_encoder.layers:
                layer.compile()  # in place: names of parameters stay

    @classmethod
    def build_model(cls, args: Any, task: Any) -> FastRobertaModel:
        """Build the model for the task's vocabulary; without --max-positions it has the task's length."""
        cfg = read_config(args, max_positions=task.max_positions() or _tokens_per_sample(task))
        return cls(cfg, RobertaEncoder(cfg, task.source_dictionary))

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str | None = None,
        data_name_or_path: str | None = None,
        tokenizer: str | None = None,
        **others: Any,
    ) -> Any:
        """A `RobertaHub`, as fairseq's `RobertaModel.from_pretrained` returns its hub interface.

        Args:
            model_name_or_path: the folder of the checkpoint.
            checkpoint_file: see `RobertaHub.from_pretrained`, as for the next.
            data_name_or_path: folder with dict.txt and the tokenizer's files; one that begins with "." lies in the
                folder of the checkpoint.
            tokenizer: folder with the tokenizer's files, if not that of dict.txt.
            others: refused.

        Raises:
            TypeError: for bpe="gpt2" and other options of fairseq's tokenizers.
        """
        from .hub_interface import RobertaHub

        if others:
            raise TypeError(
                f"FastRobertaModel.from_pretrained does not take {', '.join(others)}: the tokenizer is that of the "
                "files in data_name_or_path."
            )
        if data_name_or_path is not None and data_name_or_path.startswith("."):
            data_name_or_path = os.path.join(model_name_or_path, data_name_or_path)
        return RobertaHub.from_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, tokenizer)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        span_head_name: str | None = None,
        masked_tokens: Tensor | None = None,
        predicted: Mapping[str, Any] | None = None,
        has_padding: bool | None = None,
        packing: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Ids -> scores, features or the loss, and {"inner_states": ...}.

        Args:
            src_tokens: ids (B, T), each row beginning with <s>, padded on the right.
            src_lengths: not needed; fairseq's batches hold it.
            features_only: return features (B, T, D) instead of scores.
            return_all_hiddens: put the embeddings and each layer's output, (T, B, D) as in fairseq, into the extra.
            classification_head_name: return this head's scores (B, C), or (S, C) of a packed row, whose padding may
                count as sequences at its end.
            span_head_name: return this head's `SpanScores`.
            masked_tokens: bool (B, T): score these positions only, (M, V) instead of (B, T, V).
            predicted: {"positions" (B, Q), "answers" (B, Q)}: return the summed cross-entropy () of these answers,
                in nats and fp32, and nothing in the extra; an answer that is <pad> does not count.
            has_padding: whether a row is padded; where it is not told, the tokens are looked at.
            packing: {"positions" (1, T), "edges" (S + 1,), "longest"}: the one row holds S sequences end to end.
            others: what else fairseq's tasks put into their batches, as src_id; not needed, as in fairseq's roberta.
        """
        if self.training and not self._has_said_how:
            self._say_how(src_tokens, packing)
        output, extra = self.encoder(
            src_tokens,
            features_only=features_only or classification_head_name is not None or span_head_name is not None,
            first_only=classification_head_name is not None and not return_all_hiddens,
            return_all_hiddens=return_all_hiddens,
            masked_tokens=masked_tokens,
            predicted=predicted,
            has_padding=has_padding,
            packing=packing,
        )
        if classification_head_name is not None:
            output = self.classification_heads[classification_head_name](output)
        if span_head_name is not None:
            output = self.span_heads[span_head_name](output)
        return output, extra

    def training_flops(self, *, num_tokens: int, num_pairs: int, num_predicted: int) -> float:
        """FLOPs of a training step on a batch of these sizes; see `flops.training_flops`."""
        return training_flops(
            num_layers=self.cfg.encoder_layers,
            dim=self.cfg.encoder_embed_dim,
            ffn_dim=self.cfg.encoder_ffn_embed_dim,
            vocab_size=self.encoder.lm_head.bias.numel(),
            num_tokens=num_tokens,
            num_pairs=num_pairs,
            num_predicted=num_predicted,
        )

    def num_compiled_graphs(self) -> int:
        """Graphs that torch.compile has made in this process so far; shapes that keep changing make ever more."""
        if not self.cfg.compile_layers:
            return 0
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def peak_flops(self) -> float:
        """What the device of the parameters can do in their type, FLOP/s; 0 where we do not know."""
        return peak_flops(self.encoder.lm_head.bias.device, self.encoder.lm_head.bias.dtype)

    def _say_how(self, src_tokens: Tensor, packing: Mapping[str, Any] | None) -> None:
        """Log, once a training, which attention backend was chosen and for what."""
        self._has_said_how = True
        weight = self.encoder.lm_head.bias
        backend = choose_backend(
            str(self.cfg.attention_backend),
            device=weight.device,
            dtype=weight.dtype,
            dropout_prob=self.cfg.attention_dropout,
            longest=src_tokens.size(1) if packing is None else packing["longest"],
            is_packed=packing is not None,
        )
        batches = "padded batches" if packing is None else "packed rows"
        logger.info(
            f"attention backend: {backend.name} (--attention-backend {self.cfg.attention_backend}) for {batches} on "
            f"{weight.device.type} in {str(weight.dtype).removeprefix('torch.')}, dropout {self.cfg.attention_dropout}"
        )

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Any = None) -> Tensor:
        """Scores -> probabilities or their logarithms, in fp32."""
        scores: Tensor = net_output[0].float()
        return scores.log_softmax(dim=-1) if log_probs else scores.softmax(dim=-1)

    @property
    def supported_targets(self) -> set[str]:
        """fairseq asks for it; the targets are the input's own tokens."""
        return {"self"}

    def register_classification_head(
        self, name: str, num_classes: int | None = None, inner_dim: int | None = None, **kwargs: Any
    ) -> None:
        """Add a head called `name`, or replace it, with fresh weights."""
        assert num_classes is not None
        if name in self.classification_heads:
            logger.warning(f"the classification head {name!r} is replaced by a new one with {num_classes} classes")
        head = ClassificationHead(self.cfg.encoder_embed_dim, num_classes=num_classes, **self._head_options(inner_dim))
        head.apply(initialize)
        self.classification_heads[name] = head

    def register_span_head(self, name: str) -> None:
        """Add a head called `name` that finds spans, with fresh weights."""
        head = SpanHead(self.cfg.encoder_embed_dim, **self._head_options(None))
        head.apply(initialize)
        self.span_heads[name] = head

    def _head_options(self, inner_dim: int | None) -> dict[str, Any]:
        return {
            "inner_dim": inner_dim or self.cfg.encoder_embed_dim,
            "activation": ACTIVATIONS[str(self.cfg.pooler_activation_fn)],
            "dropout_prob": self.cfg.pooler_dropout,
        }

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Bring a state dict of fairseq's `roberta`, of any age, to our names, and settle its heads, in place."""
        renamed = from_older_fairseq(state_dict)
        state_dict.clear()
        state_dict.update(renamed)
        check_sizes(self, state_dict)
        settle_heads(self, state_dict)


def _register_size(size: str) -> None:
    def set_defaults(args: Any) -> None:
        set_size(args, size)

    register_model_architecture("fast_roberta", f"fast_roberta_{size}")(set_defaults)


for _size in SIZES:
    _register_size(_size)
