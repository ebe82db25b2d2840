"""Ids of any number of sequences -> predictions and features: the part of `RobertaHub` without texts.

Shapes: N sequences in all, B in a batch, T tokens in a sequence, D model dimension, V vocabulary, C classes, M masked
positions, K answers for each mask.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from roberta_plugin.conversion.portable import MASKED_LM, left_masked_lm
from roberta_plugin.data.tokenizers.base import Tokenizer
from roberta_plugin.data.vocabulary import Vocabulary
from roberta_plugin.finetuning import identity
from roberta_plugin.hub import running
from roberta_plugin.hub.graphs import GraphModel
from roberta_plugin.hub.running import Batch, map_batches
from roberta_plugin.hub.texts import TextCodec
from roberta_plugin.models.heads import Pooling, check_pooling, pool, pool_windows
from roberta_plugin.registry import HUB_METHODS

logger = logging.getLogger(__name__)


class HubCore(nn.Module):
    """A model with its tokenizer and vocabulary.

    Attributes:
        trained_on: the checkpoint's record of its fine-tuning (`finetuning/identity.py`): task, settings with
            labels and lengths, tokenizer, vocabulary; empty if it was not fine-tuned.
        codec: texts <-> ids.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        trained_on: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.trained_on = dict(trained_on or {})
        self._has_warned_of_length = self._has_warned_of_head = False
        keeps_space = bool(self.trained_on.get(identity.MASK_KEEPS_SPACE))
        self.codec = TextCodec(tokenizer, vocabulary, mask_keeps_space=keeps_space)
        self._never_filled = torch.from_numpy(vocabulary.never_masked())  # special tokens cannot be answers

    @property
    def device(self) -> torch.device:
        """The device of the parameters and of results."""
        return next(self.model.parameters(), torch.empty(0)).device

    @property
    def max_positions(self) -> int:
        """The most tokens in a sequence, <s> and </s> included."""
        return int(self.model.max_positions())  # type: ignore[operator]

    @property
    def longest(self) -> float:
        """The most tokens of an input; infinite without a limit of positions, even beyond those of training."""
        return self.max_positions if getattr(self.model, "has_position_limit", True) else math.inf

    @property
    def trained_length(self) -> int:
        """The most tokens of a text in training, <s> and </s> included; longer texts were cut."""
        settings = self.trained_on.get("settings") or {}
        return min(int(settings.get("max_length") or self.max_positions), self.max_positions)

    @property
    def labels(self) -> list[str]:
        """Names of the classes, in the order of the logits; empty if the checkpoint does not have them."""
        return [str(label) for label in self.trained_on.get("settings", {}).get("labels") or ()]

    @property
    def heads(self) -> list[str]:
        """Names of all heads of the model, without the LM head."""
        return list(self.head_kinds)

    @property
    def head_kinds(self) -> dict[str, str]:
        """The kind of each head, by its name; fairseq's `roberta` only has classification heads."""
        kinds: dict[str, str] | None = getattr(self.model, "head_kinds", None)
        if kinds is None:
            kinds = dict.fromkeys(getattr(self.model, "classification_heads", ()), "classification")
        return kinds

    def heads_of(self, kind: str) -> list[str]:
        """Names of the heads of a kind (`registry.HEADS`)."""
        return [name for name, head_kind in self.head_kinds.items() if head_kind == kind]

    def num_classes(self, head: str) -> int:
        """Classes of a head."""
        heads: Any = self.model.heads if hasattr(self.model, "head_kinds") else self.model.classification_heads
        found = heads[head]
        return int(found.num_classes if hasattr(found, "num_classes") else found.out_proj.out_features)

    def __getattr__(self, name: str) -> Any:
        """The methods that extensions add (`registry.HUB_METHODS`)."""
        if not name.startswith("_") and name in HUB_METHODS:
            return partial(HUB_METHODS.load(name), self)
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        """The usual names and the methods of extensions, for tab completion."""
        return [*super().__dir__(), *HUB_METHODS]

    def outputs_of_ids(self, tokens: Tensor, head: str) -> Any:
        """The output of a head for ids (T,) or (B, T), with gradients."""
        batch = self.as_batch(tokens)
        if batch.tokens[:, 0].eq(self.vocabulary.pad_id).any():
            raise ValueError("The ids are padded on the left, and heads read their first token: pad on the right.")
        return running.head_outputs(self.model, batch, head)

    def run(
        self,
        sequences: Sequence[NDArray[Any]],
        function: Callable[[Batch], Sequence[Any]],
        *,
        max_tokens: int | None = None,
    ) -> list[Any]:
        """Run a function of a batch on batches of similar length, without gradients; results in order.

        Raises:
            ValueError: if a sequence has too many tokens for the model.
        """
        for sequence in sequences:
            self.check_length(len(sequence))
        return map_batches(
            self.model, sequences, function, pad_id=self.vocabulary.pad_id, device=self.device, max_tokens=max_tokens
        )

    def as_batch(self, tokens: Tensor) -> Batch:
        """A batch of ids (T,) or (B, T), which may be padded."""
        tokens = self._check_ids(tokens, dims=(1, 2), least=1)
        tokens = tokens.unsqueeze(0) if tokens.dim() == 1 else tokens  # (T,) -> (1, T)
        self.check_length(tokens.size(-1))
        lengths = tokens.ne(self.vocabulary.pad_id).sum(dim=1).tolist()
        return Batch(tokens.to(self.device), lengths, list(range(len(tokens))))

    def _check_ids(self, tokens: Any, *, dims: Sequence[int], least: int = 0) -> Tensor:
        """The ids as a tensor of int64.

        Raises:
            ValueError: for numbers that are not ids, another number of dimensions, or fewer than `least` ids.
        """
        try:
            ids = torch.as_tensor(tokens)
            is_whole = not ids.is_floating_point() and not ids.is_complex() and ids.dtype != torch.bool
            are_known = not ids.numel() or (is_whole and ids.min() >= 0 and ids.max() < len(self.vocabulary))
            if ids.dim() in dims and ids.numel() >= least and are_known:
                return ids.long()
            shown = f"{str(ids.dtype).removeprefix('torch.')} of the shape {tuple(ids.shape)}: {ids.tolist()!r:.40}"
        except (TypeError, ValueError, RuntimeError):
            shown = f"{tokens!r:.80}"
        shapes = " or ".join(("(tokens,)", "(texts, tokens)")[number - 1] for number in dims)
        raise ValueError(
            f"Give ids {shapes} from 0 to {len(self.vocabulary) - 1:,}, as `encode` returns them, got {shown}."
        )

    def check_length(self, length: int) -> None:
        """Refuse a sequence of more tokens than the model reads; warn of more than it was trained with."""
        if length > self.longest:
            raise ValueError(
                f"The text has {length} tokens, and this model reads at most {self.max_positions}: shorten it."
            )
        if length > self.max_positions:
            level = logging.DEBUG if self._has_warned_of_length else logging.WARNING  # once
            self._has_warned_of_length = True
            logger.log(
                level,
                f"A text has {length} tokens, and the model was trained with at most {self.max_positions}: its "
                "positions continue, but answers may be worse.",
            )

    def check_masked_lm(self) -> None:
        """Refuse a model that was imported without a masked-LM head: its weights are untrained.

        Warn once of a head that was not trained with the present encoder.
        """
        if MASKED_LM in self.trained_on.get(identity.MADE_ANEW, ()):
            raise ValueError(
                "The model came without a masked-LM head, so it cannot fill masks or compare phrases: use the "
                "pretrained model from which it was made. For vectors, give --task-kind embedding."
            )
        if left_masked_lm(self.trained_on) and not self._has_warned_of_head:
            self._has_warned_of_head = True
            logger.warning(
                "The masked-LM head was not trained with this encoder, which was fine-tuned without it: its answers "
                "are worse than the pretrained model's."
            )

    def fill_sequences(
        self, sequences: Sequence[NDArray[Any]], *, topk: int, max_tokens: int | None = None
    ) -> list[list[list[tuple[float, int]]]]:
        """Top-k token ids and probabilities for every mask of each sequence (T,)."""
        self.check_masked_lm()
        never = self._never_filled

        def run(batch: Batch) -> list[list[list[tuple[float, int]]]]:
            positions = [np.flatnonzero(sequences[row] == self.vocabulary.mask_id).tolist() for row in batch.rows]
            answers: list[list[tuple[float, int]]] = []
            for logits in running.position_logits(self.model, batch, positions):  # (M', V)
                total = logits.float().logsumexp(dim=-1, keepdim=True)  # the softmax is over all V
                allowed = logits.float().masked_fill(never.to(logits.device), float("-inf"))
                values, ids = allowed.topk(min(topk, int((~never).sum())), dim=-1)  # -> (M', K)
                for best in zip((values - total).exp().tolist(), ids.tolist(), strict=True):
                    answers.append(list(zip(*best, strict=True)))
            remaining = iter(answers)
            return [[next(remaining) for _ in row] for row in positions]

        return self.run(sequences, run, max_tokens=max_tokens)

    def class_logits(self, sequences: Sequence[NDArray[Any]], head: str, *, max_tokens: int | None = None) -> Tensor:
        """A classification head's logits for all sequences (N, C), in fp32 on the CPU."""
        rows = self.run(
            sequences,
            lambda batch: list(running.head_outputs(self.model, batch, head).float().cpu()),
            max_tokens=max_tokens,
        )
        return torch.stack(rows) if rows else torch.empty(0, self.num_classes(head))

    def text_logits(
        self,
        texts: Sequence[Sequence[NDArray[Any]]],
        head: str,
        *,
        pooling: str | None = None,
        max_tokens: int | None = None,
    ) -> Tensor:
        """A classification head's logits (N, C), in fp32 on the CPU.

        Args:
            texts: the sequences of each text: one, or several windows, which `models/heads.pool_windows` pools.
            head: the name of the head.
            pooling: how to pool windows; None: each text is one sequence.
            max_tokens: most positions of a batch, padding included; None: a number that suits the device. A batch may
                mix windows of different texts.
        """
        sequences = [sequence for windows in texts for sequence in windows]
        if pooling is None:
            return self.class_logits(sequences, head, max_tokens=max_tokens)
        vectors = self.run(
            sequences, lambda batch: list(running.first_features(self.model, batch)), max_tokens=max_tokens
        )
        if not vectors:
            return torch.empty(0, self.num_classes(head))
        first = torch.tensor(np.cumsum([0, *map(len, texts)]), device=self.device)
        with running.inference(self.model):
            pooled = pool_windows(torch.stack(vectors)[:, None], first=first, pooling=pooling)
            logits: Tensor = self.model.heads[head](pooled)  # type: ignore[index, operator, union-attr]
        return logits.float().cpu()

    def score_spans(
        self, sequences: Sequence[NDArray[Any]], spans: Sequence[range], *, max_tokens: int | None = None
    ) -> list[float]:
        """The mean log-probability of the tokens in a span of each sequence (T,). The whole span is masked at once."""
        masked = []
        for sequence, span in zip(sequences, spans, strict=True):
            masked.append(sequence.copy())
            masked[-1][span.start : span.stop] = self.vocabulary.mask_id
        targets = [sequence[span.start : span.stop] for sequence, span in zip(sequences, spans, strict=True)]
        log_probs = self.token_log_probs(masked, spans, targets, max_tokens=max_tokens)
        return [float(part.mean()) if len(part) else 0.0 for part in log_probs]

    def token_log_probs(
        self,
        sequences: Sequence[NDArray[Any]],
        positions: Sequence[Sequence[int]],
        targets: Sequence[NDArray[Any]],
        *,
        max_tokens: int | None = None,
    ) -> list[Tensor]:
        """Log-probabilities (Q,) of the ids `targets` (Q,) at ascending `positions` (Q,) of each sequence (T,).

        They are in nats and on the CPU. The LM head only computes these positions.
        """
        self.check_masked_lm()

        def run(batch: Batch) -> list[Tensor]:
            wanted = [positions[row] for row in batch.rows]
            ids = torch.from_numpy(np.concatenate([targets[row] for row in batch.rows]).astype(np.int64))  # (M,)
            parts, done = [torch.empty(0)], 0
            for logits in running.position_logits(self.model, batch, wanted):  # (M', V)
                of_part = ids[done : done + len(logits), None].to(logits.device)
                exact = logits if logits.dtype == torch.float64 else logits.float()
                parts.append(exact.log_softmax(dim=-1).gather(1, of_part)[:, 0].cpu())  # -> (M',)
                done += len(logits)
            return list(torch.cat(parts).split([len(row) for row in wanted]))

        return self.run(sequences, run, max_tokens=max_tokens)

    def pooled(
        self,
        sequences: Sequence[NDArray[Any]],
        pooling: Pooling,
        *,
        normalize: bool = False,
        skipped: int = 0,
        max_tokens: int | None = None,
    ) -> Tensor:
        """One vector for each sequence (N, D), in fp32 on the CPU: the features of the last layer as `pooling` says.

        The first `skipped` positions are read, but not pooled.
        """
        rows = self.run(sequences, make_pooler(self.model, pooling, skipped=skipped), max_tokens=max_tokens)
        vectors = torch.stack(rows) if rows else torch.empty(0, self.dim)
        return F.normalize(vectors, dim=-1) if normalize else vectors

    def features(
        self, sequences: Sequence[NDArray[Any]], *, all_layers: bool = False, max_tokens: int | None = None
    ) -> list[Any]:
        """Features (T, D) of each sequence, or with `all_layers` a list of them: the embeddings, then each layer."""

        def run(batch: Batch) -> list[list[Tensor]]:
            layers = running.hidden_states(self.model, batch) if all_layers else [running.features(self.model, batch)]
            return [[layer[row, :length] for layer in layers] for row, length in enumerate(batch.lengths)]

        # Each is a separate copy, on top of which models can be trained.
        states = [[layer.clone() for layer in layers] for layers in self.run(sequences, run, max_tokens=max_tokens)]
        return states if all_layers else [row for (row,) in states]

    @property
    def dim(self) -> int:
        """The model dimension D."""
        if isinstance(self.model, GraphModel):
            return self.model.dim
        return int(self.model.encoder.sentence_encoder.embed_tokens.embedding_dim)  # type: ignore[union-attr, arg-type]


def make_pooler(model: nn.Module, pooling: Pooling, *, skipped: int = 0) -> Callable[[Batch], list[Tensor]]:
    """A function from a batch to one vector (D,) for each row, in fp32 on the CPU.

    Raises:
        ValueError: for an unknown way of pooling, or a graph that would have to skip positions.
    """
    check_pooling(pooling)
    if isinstance(model, GraphModel):
        if skipped:
            raise ValueError(
                f"The model leaves its prompt out of vectors, and {model.what} pools all tokens: use the checkpoint."
            )
        return lambda batch: list(model.pooled(batch.tokens, pooling, has_padding=batch.has_padding))

    def first_vectors(batch: Batch) -> list[Tensor]:
        return list(running.first_features(model, batch).float().cpu())

    def pooled_vectors(batch: Batch) -> list[Tensor]:
        lengths = torch.tensor(batch.lengths, device=batch.tokens.device)
        is_token = torch.arange(batch.tokens.size(1), device=batch.tokens.device) < lengths[:, None]  # (B, T)
        return list(pool(running.features(model, batch).float(), is_token, pooling, skipped=skipped).cpu())  # (B, D)

    return first_vectors if pooling == "first" and not skipped else pooled_vectors
