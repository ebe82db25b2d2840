"""The sentence encoder with its pretraining heads, as an encoder of fairseq.

Shapes: B blocks, T positions, S sequences (B, or those of a packed row), D model dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roberta_plugin.models.attention.base import first_of_predicted, first_positions
from roberta_plugin.models.config import ACTIVATIONS, FastRobertaConfig, init_std
from roberta_plugin.models.encoder import Layer, SentenceEncoder
from roberta_plugin.models.pooling import pool
from roberta_plugin.models.pretraining_heads import MaskedLMHead, NextSentenceHead
from roberta_plugin.models.sharing import num_groups, share

POSITIONS_AT_ONCE = 32768  # outside of training; a document of hundreds of windows has more


class RobertaEncoder(FairseqEncoder):  # type: ignore[misc]
    """The sentence encoder with the masked-LM head and, if wanted, that of next-sentence prediction."""

    def __init__(
        self, cfg: FastRobertaConfig, dictionary: Any, *, num_segments: int = 0, predicts_next_sentence: bool = False
    ) -> None:
        super().__init__(dictionary)
        self.cfg = cfg
        dim, activation = cfg.encoder_embed_dim, ACTIVATIONS[str(cfg.activation_fn)]
        self.sentence_encoder = SentenceEncoder(
            len(dictionary),
            dim=dim,
            pad_id=dictionary.pad(),
            max_positions=self.max_positions(),
            layers=self._new_layers(),
            dropout_prob=cfg.dropout,
            layer_norm_eps=cfg.layer_norm_eps,
            checkpoint_activations=cfg.checkpoint_activations,
            num_segments=num_segments,
            layerdrop_prob=cfg.encoder_layerdrop,
            normalizes_embeddings=not cfg.no_layernorm_embedding,
            normalizes_features=cfg.encoder_normalize_before,
        )
        embeddings: Any = None if cfg.untie_weights_roberta else self.sentence_encoder.embed_tokens.weight
        self.lm_head = MaskedLMHead(
            dim,
            activation=activation,
            vocab_size=len(dictionary),
            weight=embeddings,
            layer_norm_eps=cfg.layer_norm_eps,
            init_std=init_std(cfg),
        )
        self.next_sentence_head = NextSentenceHead(dim) if predicts_next_sentence else None

    def _new_layers(self) -> list[nn.Module]:
        """The encoder's layers, some of which may be the same."""
        cfg = self.cfg
        groups = num_groups(cfg.share_layers, cfg.encoder_layers)
        layers = [self.new_layer(cfg.encoder_normalize_before) for _ in range(cfg.encoder_layers)]
        return share(layers, groups=groups, parts=str(cfg.share_parts))

    def new_layer(self, normalize_before: bool = False) -> Layer:
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
            layer_norm_eps=cfg.layer_norm_eps,
            normalize_before=normalize_before,
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
        if self.next_sentence_head is None:
            return loss, {}
        first = first_of_predicted(features, predicted)
        return loss, {"next_sentence_logits": self.next_sentence_head(first)}

    def first_features(self, src_tokens: Tensor, *, in_parts: bool = False, **layout: Any) -> Tensor:
        """Features (S, 1, D) of each sequence's <s>; the last layer computes no others.

        `in_parts`: see `predicted_features`.
        """
        positions = first_positions(src_tokens, layout["packing"])
        features = self.predicted_features(src_tokens, positions, in_parts=in_parts, **layout)
        return features.reshape(-1, 1, features.size(-1))  # (B, 1, D) or (1, S, D) -> (S, 1, D)

    def sentence_features(self, src_tokens: Tensor, sentences: Mapping[str, Any], **layout: Any) -> Tensor:
        """Features (V, D) of the <s> of V sentences; the last layer computes no others.

        Outside of training, rows go through the encoder in parts of `POSITIONS_AT_ONCE`, so that a document of any
        length can be scored.

        Args:
            src_tokens: ids (B, T).
            sentences: {"positions" (B, Q), "index" (V,)} and, in a packed row, {"cu_seqlens" (S + 1,), "max_seqlen"}:
                the positions that are computed, and which of them is which sentence.
            layout: has_padding, packing and segments of the forward.
        """
        features = self.predicted_features(src_tokens, sentences, in_parts=not self.training, **layout)
        return features.flatten(0, 1)[sentences["index"]]  # (B, Q, D) -> (V, D)

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
            own = {**layout, "segments": None if segments is None else segments[rows]}
            positions = {"positions": predicted["positions"][rows]}
            parts.append(self.sentence_encoder(src_tokens[rows], predicted=positions, **own)[0])
        return torch.cat(parts)

    def vectors(self, src_tokens: Tensor, pooled: Mapping[str, Any]) -> Tensor:
        """A vector for each text (B, D), computed in parts of texts of similar length.

        With "recomputes", a part's activations are computed a second time in the backward pass, with the same random
        numbers: the gradients are those of the whole batch, in the memory of one part (gradient caching, Gao et al.
        2021, arXiv 2101.06983).

        Args:
            src_tokens: ids (B, T).
            pooled: {"pooling": see `pool`, "order" (B,): rows from the longest to the shortest, "parts": of each part
                in this order its end, its longest row and whether it is padded; "recomputes"}.
        """
        rows, found, start = src_tokens[pooled["order"]], [], 0
        for stop, width, has_padding in pooled["parts"]:
            inputs = (rows[start:stop, :width], has_padding, pooled["pooling"])
            if pooled["recomputes"] and torch.is_grad_enabled():
                found.append(checkpoint(self._vectors, *inputs, use_reentrant=False))
            else:
                found.append(self._vectors(*inputs))
            start = stop
        ordered = torch.cat(found)
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
