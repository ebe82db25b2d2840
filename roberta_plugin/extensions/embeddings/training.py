"""The losses of vectors, with the names and values of sentence-transformers.

In-batch negatives: each text is compared with the right and wrong texts of all examples of the batch, on all ranks, and
its right text should be the nearest. Equal texts are never wrong for each other. Pairing a text with itself under
another dropout is SimCSE (Gao et al. 2021, arXiv 2104.08821), whose temperature 0.05 is the scale 20.

Shapes: B examples in the batch, K texts of an example (the text, the right one, wrong ones), S = B * K sequences, A
examples of all ranks, C = A * (K - 1) candidates, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from roberta_plugin.criterions.base import gathered, ranks
from roberta_plugin.extensions.embeddings.dataset import EmbeddingDataset
from roberta_plugin.extensions.embeddings.kind import COSINE, TRIPLET, Embedding
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.training import Criterion, KindTraining, Loss, need_ours


class EmbeddingTraining(KindTraining):
    """Gives vectors to texts."""

    dataset_class = inputs_class = EmbeddingDataset
    kind: Embedding

    @override
    def register_heads(self, model: Any) -> None:
        need_ours(model, "gives no vectors of texts:")
        super().register_heads(model)

    @override
    def open_dataset(self, name: str, split: Any, **options: Any) -> ExamplesDataset:
        dataset = EmbeddingDataset(split, **options)
        if name == "train":
            dataset.mini_batch_size = self.cfg.mini_batch_size or None
        return dataset

    @override
    def outputs(self, model: Any, sample: Mapping[str, Any]) -> Tensor:
        """The vectors of the S sequences of a batch (S, D)."""
        inputs = dict(sample["net_input"])
        recomputes = model.training and self.cfg.mini_batch_size > 0
        pooled = {**inputs.pop("pooled"), "pooling": self.kind.pooling, "recomputes": recomputes}
        vectors: Tensor = model(inputs["src_tokens"], pooled=pooled)[0]
        return F.normalize(vectors, dim=-1) if self.kind.normalizes else vectors

    @override
    def loss(self, criterion: Criterion, outputs: Tensor, sample: Mapping[str, Any]) -> Loss:
        """The loss of the vectors (S, D) of a batch of `EmbeddingDataset`, by the loss that the settings name."""
        num_examples, options = sample["nsentences"], criterion.options
        vectors = outputs if outputs.dtype == torch.float64 else outputs.float()
        vectors = vectors.view(num_examples, -1, vectors.size(-1))  # (S, D) -> (B, K, D)
        loss_name = self.kind.settings["embedding_loss"]
        if loss_name == COSINE:
            near = F.cosine_similarity(vectors[:, 0], vectors[:, 1])
            return Loss(F.mse_loss(near, sample["columns"]["label"].to(near.dtype), reduction="sum"), num_examples)
        if loss_name == TRIPLET and vectors.size(1) > 2:
            metric = str(options["distance_metric"])
            far = distance(vectors[:, 0], vectors[:, 2], metric) - distance(vectors[:, 0], vectors[:, 1], metric)
            return Loss((options["triplet_margin"] - far).relu().sum(), num_examples)
        return self._ranking(criterion, vectors, sample["columns"]["texts"])

    def _ranking(self, criterion: Criterion, vectors: Tensor, texts: Tensor) -> Loss:
        """Cross-entropy of the right text. The sample size is the number of examples with a wrong text.

        In training with several ranks, each rank computes the losses of all examples, and so the gradient of the whole
        loss with respect to its own vectors. fairseq adds up the ranks' gradients, which gives the gradient of a single
        rank with all examples. The value is the loss of the rank's own examples.
        """
        size, rank = ranks() if criterion.training else (1, 0)
        all_vectors, all_texts, rows = vectors, texts, slice(0, len(vectors))
        if size > 1:
            is_dummy = self.is_dummy  # a batch that only keeps a rank busy
            vectors_of, texts_of = (gathered(each[:0] if is_dummy else each) for each in (vectors.detach(), texts))
            first = sum(map(len, vectors_of[:rank]))
            rows = slice(first, first + len(vectors_of[rank]))
            vectors_of[rank] = vectors[: len(vectors_of[rank])]
            all_vectors, all_texts = torch.cat(vectors_of), torch.cat(texts_of)
        losses, has_wrong = ranking_losses(all_vectors, all_texts, scale=criterion.options["scale"])
        total, mine = losses.sum() + 0 * vectors.sum(), losses[rows].sum()
        return Loss(total + (mine - total).detach(), has_wrong[rows].sum())


def distance(a: Tensor, b: Tensor, metric: str) -> Tensor:
    """Distances (B,) of vectors (B, D)."""
    if metric == "cosine":
        return 1 - F.cosine_similarity(a, b)
    distances: Tensor = torch.linalg.vector_norm(a - b, ord=1 if metric == "manhattan" else 2, dim=-1)
    return distances


def ranking_losses(vectors: Tensor, texts: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each example's right text among all candidates (A,), and True if it has a wrong one (A,).

    Args:
        vectors: vectors of all examples (A, K, D).
        texts: the numbers of their texts (A, K), the same for equal texts. A candidate does not count for an example
            if it is the example's own text or its right text once more, or right for an example with the same text.
        scale: factor of the cosines.
    """
    directions = F.normalize(vectors, dim=-1)
    candidates = directions[:, 1:].transpose(0, 1).flatten(0, 1)  # (A, K, D) -> (C, D): the right ones come first
    scores = scale * directions[:, 0] @ candidates.T  # (A, C)
    numbers = texts[:, 1:].T.flatten()  # (C,)
    is_equal = (numbers == texts[:, :1]) | (numbers == texts[:, 1:2])  # (A, C)
    num_examples = len(vectors)
    is_equal[:, :num_examples] |= texts[:, 0] == texts[:, :1]
    is_equal.fill_diagonal_(False)
    right = torch.arange(num_examples, device=scores.device)
    losses = F.cross_entropy(scores.masked_fill(is_equal, -torch.inf), right, reduction="none")
    return losses, is_equal.sum(dim=1) < len(candidates) - 1
