"""RoBERTa with other layers, as roberta_plugin trains it, in classes of transformers (5.23 or newer). Licence: MIT.

This file lies beside the config.json of a model, whose `auto_map` names its classes:

    AutoModelForMaskedLM.from_pretrained(FOLDER, trust_remote_code=True)

It needs torch and transformers alone. Heads and names of parameters are those of transformers' RobertaFor..., or, of
models with norms before the sublayers, of its RobertaPreLayerNormFor... with the prefix `roberta`. Attention is torch's
scaled_dot_product_attention. `token_type_ids` have no effect: a model with segments reads them off its tokens.

Shapes: B texts, N choices, T tokens, D hidden size, H heads of K dimensions, V vocabulary, C classes.
"""

# mypy: disable-error-code="no-any-return, untyped-decorator"

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils import can_return_tuple

GATES = {"geglu": "gelu", "swiglu": "silu"}
Rotation = tuple[Tensor, Tensor]


class RobertaPluginConfig(PreTrainedConfig):
    """The options of a model: as of transformers' RobertaConfig, and those of roberta_plugin by their own names."""

    model_type = "roberta_plugin"

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 514  # position 0 has row pad_token_id + 1
    num_segments: int = 0  # with 2, the tokens of the second of two texts have other embeddings
    pad_token_id: int = 1
    eos_token_id: int = 2
    tie_word_embeddings: bool = True
    hidden_act: str = "gelu"  # of plain feed-forward layers and of the masked-LM head
    pooler_activation_fn: str = "tanh"  # of heads that read <s>
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    activation_dropout: float = 0.0
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-5
    encoder_normalize_before: bool = False
    no_layernorm_embedding: bool = False
    no_first_attention_norm: bool = False
    norm: str = "layer"  # or rms
    no_norm_bias: bool = False
    no_linear_bias: bool = False
    feed_forward: str = "plain"  # or geglu, swiglu
    qk_norm: bool = False
    position_encoding: str = "learned"  # or rotary
    rotary_base: float = 10000.0
    rotary_base_local: float | None = None  # as rotary_base
    attention_window: int | None = None  # positions that local layers attend to, half of them on either side
    global_attention_every: int = 3  # with attention_window: layers 0, N, 2 N, ... are not local


def new_norm(config: Any, dim: int | None = None, *, has_bias: bool = True) -> nn.Module:
    """A layer norm or RMS norm of D or `dim` dimensions."""
    dim = dim or config.hidden_size
    if config.norm == "rms":
        return nn.RMSNorm(dim, eps=config.layer_norm_eps)
    return nn.LayerNorm(dim, eps=config.layer_norm_eps, bias=has_bias and not config.no_norm_bias)


def rotation(positions: Tensor, base: float, config: Any, dtype: torch.dtype) -> Rotation:
    """Cosines and sines (B, 1, T, K / 2) of the angles t * base^(-2 i / K) at positions (B, T), in fp32 at least."""
    dim, dtype = config.hidden_size // config.num_attention_heads, torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(0, dim, 2, dtype=dtype, device=positions.device) / dim
    angles = positions[:, None, :, None].to(dtype) * (1.0 / base**exponents)
    return angles.cos(), angles.sin()


def turned(x: Tensor, angles: Rotation) -> Tensor:
    """Queries or keys (B, H, T, K), their dimensions i and i + K / 2 turned."""
    (first, second), (cosines, sines) = x.chunk(2, dim=-1), angles
    pairs = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat(pairs, dim=-1).to(x.dtype)


def tokens_of(ids: Tensor | None, mask: Tensor | None, embeddings: Tensor | None, pad_id: int) -> Tensor:
    """Which of ids (B, T) or embeddings (B, T, D) are no padding (B, T), by the mask or else by the id."""
    if mask is not None:
        return mask.bool()
    if ids is not None:
        return ids != pad_id
    assert embeddings is not None, "ids or embeddings are given"
    return torch.ones(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)


class RobertaPluginLayer(GradientCheckpointingLayer):
    """Self-attention and feed-forward, with a norm before or after each."""

    attention: Any
    intermediate: Any
    output: Any

    def __init__(self, config: Any, number: int) -> None:
        super().__init__()
        dim, inner, gate = config.hidden_size, config.intermediate_size, GATES.get(config.feed_forward)
        self.config, self.is_gated = config, gate is not None
        self.is_local = config.attention_window is not None and number % config.global_attention_every > 0
        linear = partial(nn.Linear, bias=not config.no_linear_bias)
        heads = nn.ModuleDict({name: linear(dim, dim) for name in ("query", "key", "value")})
        for name in ("query_norm", "key_norm") if config.qk_norm else ():
            heads[name] = new_norm(config, dim // config.num_attention_heads, has_bias=False)
        self.attention = nn.ModuleDict({"self": heads, "output": nn.ModuleDict({"dense": linear(dim, dim)})})
        self.intermediate = nn.ModuleDict({"dense": linear(dim, 2 * inner if gate else inner)})
        self.output = nn.ModuleDict({"dense": linear(inner, dim)})
        for part in self._normed():
            part["LayerNorm"] = new_norm(config)
        if number == 0 and config.no_first_attention_norm:
            self.attention["LayerNorm"] = nn.Identity()
        self.activation = ACT2FN[gate or config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.activation_dropout = nn.Dropout(config.activation_dropout)

    def _normed(self) -> tuple[Any, Any]:
        """The parts with the norms of attention and feed-forward, as RobertaPreLayerNorm and RoBERTa have them."""
        if self.config.encoder_normalize_before:
            return self.attention, self.intermediate
        return self.attention.output, self.output

    def forward(self, x: Tensor, allowed: Tensor, angles: Rotation | None) -> Tensor:
        """(B, T, D) -> (B, T, D), where pairs (B, 1, 1 or T, T) are `allowed` to meet."""
        attention_norm, feed_forward_norm = (part.LayerNorm for part in self._normed())
        if self.config.encoder_normalize_before:
            x = x + self.dropout(self._attended(attention_norm(x), allowed, angles))
            return x + self._fed_forward(feed_forward_norm(x))
        x = attention_norm(x + self.dropout(self._attended(x, allowed, angles)))
        return feed_forward_norm(x + self._fed_forward(x))

    def _attended(self, x: Tensor, allowed: Tensor, angles: Rotation | None) -> Tensor:
        attn, sizes = self.attention.self, (self.config.num_attention_heads, -1)
        q, k, v = (each(x).unflatten(-1, sizes).transpose(1, 2) for each in (attn.query, attn.key, attn.value))
        if self.config.qk_norm:
            q, k = attn.query_norm(q), attn.key_norm(k)
        if angles is not None:
            q, k = turned(q, angles), turned(k, angles)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)
        return self.attention.output.dense(heads.transpose(1, 2).flatten(2))

    def _fed_forward(self, x: Tensor) -> Tensor:
        x, *gates = self.intermediate.dense(x).chunk(2 if self.is_gated else 1, dim=-1)
        x = self.activation(x) * gates[0] if gates else self.activation(x)
        return self.dropout(self.output.dense(self.activation_dropout(x)))


class RobertaPluginPreTrainedModel(PreTrainedModel):
    """Attributes of all classes."""

    config_class = RobertaPluginConfig
    base_model_prefix = "roberta"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = False  # losses are means: Trainer divides them when it accumulates gradients
    _supports_sdpa = True
    _no_split_modules = ["RobertaPluginLayer"]
    _input_embed_layer = "word_embeddings"


class RobertaPluginModel(RobertaPluginPreTrainedModel):
    """Ids -> features."""

    embeddings: Any
    encoder: Any
    pooler: Any

    def __init__(self, config: Any, *, has_pooler: bool = False) -> None:
        """The pooler is the first layer of the head for choices, where RoBERTa's has it."""
        super().__init__(config)
        size, pad = config.hidden_size, config.pad_token_id
        tables = {"word_embeddings": nn.Embedding(config.vocab_size, size, padding_idx=pad)}
        if config.position_encoding == "learned":
            tables["position_embeddings"] = nn.Embedding(config.max_position_embeddings, size, padding_idx=pad)
        if config.num_segments:
            tables["segment_embeddings"] = nn.Embedding(config.num_segments, size)
        self.embeddings = nn.ModuleDict(tables)
        self.embeddings["LayerNorm"] = nn.Identity() if config.no_layernorm_embedding else new_norm(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        layers = [RobertaPluginLayer(config, number) for number in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.LayerNorm = new_norm(config) if config.encoder_normalize_before else nn.Identity()
        self.pooler = nn.ModuleDict({"dense": nn.Linear(size, size)}) if has_pooler else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> BaseModelOutput:
        """Ids (B, T), or embeddings (B, T, D), -> features (B, T, D).

        Without `attention_mask` (B, T), padding is told by its id. `position_ids` (B, T) are rows of position
        embeddings, of which the first token has pad_token_id + 1, or any numbers for rotary positions. Embeddings are
        of a single text.
        """
        config = self.config
        is_token = tokens_of(input_ids, attention_mask, inputs_embeds, config.pad_token_id)
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        x, at = inputs_embeds, torch.arange(inputs_embeds.size(1), device=inputs_embeds.device)
        if config.position_encoding == "learned":
            counted = is_token.long().cumsum(1) * is_token + config.pad_token_id
            x = x + self.embeddings.position_embeddings(counted if position_ids is None else position_ids)
        if config.num_segments:
            is_end = torch.zeros_like(is_token) if input_ids is None else input_ids == config.eos_token_id
            pairs = (is_end[:, 1:] & is_end[:, :-1]).cumsum(1)  # in `<s> a </s></s> b </s>`, b begins with its </s>
            x = x + self.embeddings.segment_embeddings(F.pad(pairs, (1, 0)).clamp(max=1))
        x = self.dropout(self.embeddings.LayerNorm(x))
        allowed = is_token[:, None, None]
        places: dict[bool, tuple[Tensor, Rotation | None]] = {}  # whether a layer is local -> what it knows
        for is_local, base in ((False, config.rotary_base), (True, config.rotary_base_local or config.rotary_base)):
            if is_local and config.attention_window is not None:
                allowed = allowed & ((at[:, None] - at).abs() <= config.attention_window // 2)
            angles = None
            if config.position_encoding == "rotary":
                angles = rotation(at[None] if position_ids is None else position_ids, base, config, x.dtype)
            # All for a position that would have none, such as padding: kernels give NaN otherwise.
            places[is_local] = (allowed | ~allowed.any(-1, keepdim=True), angles)
        if others.get("output_attentions") or config.output_attentions:
            raise ValueError("output_attentions: this model computes attention without its weights, and has none.")
        hidden = [x]
        for layer in self.encoder.layer:
            x = layer(x, *places[layer.is_local])
            hidden.append(x)
        x = self.LayerNorm(x)
        keeps = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutput(last_hidden_state=x, hidden_states=(*hidden[:-1], x) if keeps else None)


class _WithHead(RobertaPluginPreTrainedModel):
    """The encoder and a head; each class says how it makes the head, and what of its output."""

    output: Any
    reads_first = False
    has_choices = False

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.roberta = RobertaPluginModel(config, has_pooler=self.has_choices)
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self._make_head(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """As `RobertaPluginModel`, or with another dimension N for choices; and with labels their mean loss."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        texts = [each.flatten(0, 1) if self.has_choices and each is not None else each for each in inputs]
        encoded = self.roberta(*texts, **{**options, "return_dict": True})
        x = encoded.last_hidden_state
        if self.reads_first:  # which is not at 0 where padding is on the left
            first = tokens_of(texts[0], texts[1], texts[4], self.config.pad_token_id).long().argmax(1)
            x = x[torch.arange(len(x), device=x.device), first]  # (B, T, D) -> (B, D)
        logits = self._logits(x)
        if self.has_choices:
            logits = logits.view(-1, next(each.size(1) for each in inputs if each is not None))
        loss = None if labels is None else self._loss(logits, labels)
        return self.output(loss=loss, hidden_states=encoded.hidden_states, **self._named(logits))

    def _named(self, logits: Tensor) -> dict[str, Tensor]:
        """The fields of the output."""
        return {"logits": logits}

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())

    def _logits(self, x: Tensor) -> Tensor:
        return self.classifier(self.dropout(x))


class RobertaPluginLMHead(nn.Module):
    """Features (..., D) -> logits (..., V)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=not config.no_linear_bias)
        self.activation, self.layer_norm = ACT2FN[config.hidden_act], new_norm(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.decoder(self.layer_norm(self.activation(self.dense(x))))


class RobertaPluginForMaskedLM(_WithHead):
    """Logits (B, T, V)."""

    output = MaskedLMOutput
    _tied_weights_keys = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}

    def _make_head(self, config: Any) -> None:
        self.lm_head = RobertaPluginLMHead(config)

    def get_output_embeddings(self) -> nn.Module:
        """The last layer, whose matrix may be that of the embeddings."""
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace it, as for another vocabulary."""
        self.lm_head.decoder = new_embeddings

    def _logits(self, x: Tensor) -> Tensor:
        return self.lm_head(x)


class RobertaPluginClassificationHead(nn.Module):
    """Features of <s> (B, D) -> logits (B, C)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.pooler_activation_fn]
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return self.out_proj(self.dropout(self.activation(self.dense(x))))


class RobertaPluginForSequenceClassification(_WithHead):
    """Logits (B, C), or numbers (B, C) with the problem_type regression."""

    output = SequenceClassifierOutput
    reads_first = True

    def _make_head(self, config: Any) -> None:
        self.classifier = RobertaPluginClassificationHead(config)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        # Without a problem_type, as in transformers: one output is a number, labels in floating point are yes or no for
        # each class, and whole numbers are classes.
        kind = self.config.problem_type or ("regression" if self.config.num_labels == 1 else None)
        if kind == "regression":
            return F.mse_loss(logits.flatten(), labels.flatten().to(logits.dtype))
        if kind == "multi_label_classification" or (kind is None and labels.is_floating_point()):
            return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        return super()._loss(logits, labels)


class RobertaPluginForTokenClassification(_WithHead):
    """Logits (B, T, C)."""

    output = TokenClassifierOutput

    def _make_head(self, config: Any) -> None:
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)


class RobertaPluginForMultipleChoice(_WithHead):
    """Logits (B, N)."""

    output = MultipleChoiceModelOutput
    reads_first = has_choices = True

    def _make_head(self, config: Any) -> None:
        self.classifier = nn.Linear(config.hidden_size, 1)

    def _logits(self, x: Tensor) -> Tensor:
        inner = self.roberta.pooler.dense(self.dropout(x))
        return super()._logits(ACT2FN[self.config.pooler_activation_fn](inner))


class RobertaPluginForQuestionAnswering(_WithHead):
    """Two logits (B, T): of each token as the first and as the last of the answer."""

    output = QuestionAnsweringModelOutput

    def _make_head(self, config: Any) -> None:
        self.qa_outputs = nn.Linear(config.hidden_size, 2)

    def forward(  # without `labels`, after which Trainer would look
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """As of the other classes, with the places (B,) of the answer, which do not count outside of the text."""
        labels = None
        if start_positions is not None and end_positions is not None:
            labels = torch.stack((start_positions.flatten(), end_positions.flatten()), dim=-1)
        return super().forward(input_ids, attention_mask, None, position_ids, inputs_embeds, labels, **options)

    def _logits(self, x: Tensor) -> Tensor:
        return self.qa_outputs(x)

    def _named(self, logits: Tensor) -> dict[str, Tensor]:
        return {"start_logits": logits[..., 0].contiguous(), "end_logits": logits[..., 1].contiguous()}

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        length = logits.size(1)
        return F.cross_entropy(logits, labels.clamp(0, length), ignore_index=length)
