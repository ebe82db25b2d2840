"""The encoder of `fast_roberta` with the heads of pretraining, as a module of fairseq: ids -> features where needed.

Shapes: B blocks, T positions, S sequences (B, or as many as a packed row has), D model dimension, Q predicted positions
of a block, V places of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roberta_plugin.models.attention_kernels import first_of_predicted, first_positions
from roberta_plugin.models.config import ACTIVATIONS, FastRobertaConfig, init_std
from roberta_plugin.models.encoder import Layer, SentenceEncoder, new_norm
from roberta_plugin.models.heads import MaskedLMHead, SequenceHead, pool
from roberta_plugin.models.positions import PositionScheme
from roberta_plugin.models.sharing import num_groups, share

POSITIONS_AT_ONCE = 32768  # outside of training; a document of hundreds of windows has more


class RobertaEncoder(FairseqEncoder):  # type: ignore[misc]
    """The sentence encoder with the masked-LM head and the heads for sequences that pretraining trains beside it."""

    def __init__(
        self,
        cfg: FastRobertaConfig,
        dictionary: Any,
        *,
        num_segments: int = 0,
        sequence_heads: Mapping[str, type[SequenceHead]] = MappingProxyType({}),
    ) -> None:
        """`sequence_heads`: name of a parameter of this module, which files have, -> its class."""
        super().__init__(dictionary)
        self.cfg = cfg
        dim, activation = cfg.encoder_embed_dim, ACTIVATIONS[str(cfg.activation_fn)]
        self._new_norm = partial(new_norm, kind=str(cfg.norm), eps=cfg.layer_norm_eps, has_bias=not cfg.no_norm_bias)
        self.sentence_encoder = SentenceEncoder(
            len(dictionary),
            dim=dim,
            pad_id=dictionary.pad(),
            max_positions=self.max_positions(),
            layers=self._new_layers(),
            dropout_prob=cfg.dropout,
            new_norm=self._new_norm,
            checkpoint_activations=cfg.checkpoint_activations,
            num_segments=num_segments,
            layerdrop_prob=cfg.encoder_layerdrop,
            normalizes_embeddings=not cfg.no_layernorm_embedding,
            normalizes_features=cfg.encoder_normalize_before,
            positions=PositionScheme.from_config(cfg),
        )
        embeddings: Any = None if cfg.untie_weights_roberta else self.sentence_encoder.embed_tokens.weight
        self.lm_head = MaskedLMHead(
            dim,
            activation=activation,
            vocab_size=len(dictionary),
            weight=embeddings,
            new_norm=self._new_norm,
            has_bias=not cfg.no_linear_bias,
            init_std=init_std(cfg),
        )
        self.names_of_sequence_heads = tuple(sequence_heads)
        for name, head in sequence_heads.items():
            self.add_module(name, head(dim))

    @property
    def sequence_heads(self) -> list[SequenceHead]:
        """The heads for classes of sequences."""
        return [getattr(self, name) for name in self.names_of_sequence_heads]

    def sequence_logits(self, features: Tensor, positions: Mapping[str, Any]) -> dict[str, Any]:
        """{"sequence_logits": logits (S, C) of each head's task}; empty without such heads.

        `positions` say which of the features (B, Q, D) are of <s>; see `first_of_predicted`.
        """
        if not self.names_of_sequence_heads:
            return {}
        first = first_of_predicted(features, positions)
        return {"sequence_logits": {head.task: head(first) for head in self.sequence_heads}}

    def _new_layers(self) -> list[nn.Module]:
        """The encoder's layers, some of which may be the same."""
        cfg = self.cfg
        groups = num_groups(cfg.share_layers, cfg.encoder_layers)
        layers: list[nn.Module] = [
            self.new_layer(
                cfg.encoder_normalize_before, has_attention_norm=number > 0 or not cfg.no_first_attention_norm
            )
            for number in range(cfg.encoder_layers)
        ]
        return share(layers, groups=groups, parts=str(cfg.share_parts))

    def new_layer(self, normalize_before: bool = False, *, has_attention_norm: bool = True) -> Layer:
        """A layer of the sizes and dropouts of this encoder."""
        cfg = self.cfg
        return Layer(
            cfg.encoder_embed_dim,
            ffn_dim=cfg.encoder_ffn_embed_dim,
            num_heads=cfg.encoder_attention_heads,
            activation=ACTIVATIONS[str(cfg.activation_fn)],
            dropout_prob=cfg.dropout,
            attention_dropout_prob=cfg.attention_dropout,
            activation_dropout_prob=cfg.activation_dropout,
            attention_backend=str(cfg.attention_backend),
            new_norm=self._new_norm,
            normalize_before=normalize_before,
            has_attention_norm=has_attention_norm,
            feed_forward=str(cfg.feed_forward),
            has_bias=not cfg.no_linear_bias,
            qk_norm=cfg.qk_norm,
        )

    def forward(
        self, src_tokens: Tensor, *, return_all_hiddens: bool = False, **layout: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), {"inner_states": ...}; `layout`: has_padding, packing and segments of the forward."""
        features, hidden = self.sentence_encoder(src_tokens, keep_hidden=return_all_hiddens, **layout)
        # (B, T, D) -> (T, B, D)
        return features, {"inner_states": [states.transpose(0, 1) for states in hidden] if return_all_hiddens else None}

    def masked_lm_loss(
        self, src_tokens: Tensor, predicted: Mapping[str, Any], **layout: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Summed cross-entropy () of the labels at the predicted positions; see `FastRobertaModel.forward`."""
        features, _ = self.sentence_encoder(src_tokens, predicted=predicted, **layout)
        loss = self.lm_head.loss(features, predicted["labels"], pad_id=self.sentence_encoder.pad_id)
        return loss, self.sequence_logits(features, predicted)

    def first_features(self, src_tokens: Tensor, *, in_parts: bool = False, **layout: Any) -> Tensor:
        """Features (S, 1, D) of each sequence's <s>; the last layer computes no others.

        `in_parts`: see `predicted_features`.
        """
        positions = first_positions(src_tokens, layout["packing"])
        features = self.predicted_features(src_tokens, positions, in_parts=in_parts, **layout)
        return features.reshape(-1, 1, features.size(-1))  # (B, 1, D) or (1, S, D) -> (S, 1, D)

    def place_features(self, src_tokens: Tensor, places: Mapping[str, Any], **layout: Any) -> Tensor:
        """Features (V, D) of V places in the rows; the last layer computes no others.

        Outside of training, rows go through the encoder in parts of `POSITIONS_AT_ONCE`, so that a document of any
        length can be scored.

        Args:
            src_tokens: ids (B, T).
            places: {"positions" (B, Q), "index" (V,)} and, in a packed row, {"cu_seqlens" (S + 1,), "max_seqlen"}:
                the positions that are computed, and which of them is which place.
            layout: has_padding, packing and segments of the forward.
        """
        features = self.predicted_features(src_tokens, places, in_parts=not self.training, **layout)
        return features.flatten(0, 1)[places["index"]]  # (B, Q, D) -> (V, D)

    def predicted_features(
        self, src_tokens: Tensor, predicted: Mapping[str, Any], *, in_parts: bool, **layout: Any
    ) -> Tensor:
        """Features (B, Q, D) of the `predicted` positions.

        `in_parts`: padded rows go through the encoder in parts of `POSITIONS_AT_ONCE`, so that a document of any length
        has room.
        """
        in_parts = in_parts and layout.get("packing") is None
        num_rows = max(1, POSITIONS_AT_ONCE // src_tokens.size(1)) if in_parts else 0
        if not in_parts or num_rows >= len(src_tokens):  # `len` first would fix B in an exported graph
            features: Tensor = self.sentence_encoder(src_tokens, predicted=predicted, **layout)[0]
            return features
        segments = layout.pop("segments", None)
        parts = []
        for start in range(0, len(src_tokens), num_rows):
            rows = slice(start, start + num_rows)
            part_layout = {**layout, "segments": None if segments is None else segments[rows]}
            positions = {"positions": predicted["positions"][rows]}
            parts.append(self.sentence_encoder(src_tokens[rows], predicted=positions, **part_layout)[0])
        return torch.cat(parts)

    def vectors(self, src_tokens: Tensor, pooled: Mapping[str, Any]) -> Tensor:
        """A vector for each text (B, D), computed in parts of texts of similar length.

        With "recomputes", a part's activations are computed a second time in the backward pass, with the same random
        numbers: the gradients equal the whole batch's, in the memory of one part (gradient caching, Gao et al.
        2021, arXiv 2101.06983).

        Args:
            src_tokens: ids (B, T).
            pooled: {"pooling": see `pool`, "order" (B,): rows from the longest to the shortest, "parts": of each part
                in this order its end, its longest row and whether it is padded; "recomputes"}.
        """
        rows, vectors, start = src_tokens[pooled["order"]], [], 0
        for stop, width, has_padding in pooled["parts"]:
            inputs = (rows[start:stop, :width], has_padding, pooled["pooling"])
            if pooled["recomputes"] and torch.is_grad_enabled():
                vectors.append(checkpoint(self._vectors, *inputs, use_reentrant=False))
            else:
                vectors.append(self._vectors(*inputs))
            start = stop
        ordered = torch.cat(vectors)
        return torch.empty_like(ordered).index_copy(0, pooled["order"], ordered)

    def _vectors(self, tokens: Tensor, has_padding: bool, pooling: str) -> Tensor:
        if pooling == "first":
            positions = {"positions": tokens.new_zeros(len(tokens), 1)}
            first: Tensor = self.sentence_encoder(tokens, has_padding=has_padding, predicted=positions)[0]
            return first[:, 0]  # (B, 1, D) -> (B, D)
        features = self.sentence_encoder(tokens, has_padding=has_padding)[0]
        return pool(features, tokens.ne(self.sentence_encoder.pad_id), pooling)

    def max_positions(self) -> int:
        """The most tokens in a block."""
        assert self.cfg.max_positions is not None
        return self.cfg.max_positions
