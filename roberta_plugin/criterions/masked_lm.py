"""Masked-LM loss: the cross-entropy of the predicted positions, summed (paper section 2.1), and further tasks.

Works with our models, which compute the loss inside `forward` without forming the logits, and with any fairseq model
that follows `roberta` (`forward(**net_input, masked_tokens=...)[0]` = logits of the predicted positions).

Shapes: B blocks in the batch, T tokens in a block, M predicted positions in the batch, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass

from roberta_plugin.criterions.base import CORRECT, COUNTED, LOSS, SummedCriterion, log_masked_lm


@register_criterion("roberta_masked_lm", dataclass=FairseqDataclass)  # no options: the task chooses what is predicted
class RobertaMaskedLMCriterion(SummedCriterion):
    """Sum of the cross-entropy over predicted positions; `sample_size` is their number.

    With classes of sequences to predict as well (`sequence_labels` of a batch), such as BERT's second task, the loss
    of each batch is (mean over predicted positions + mean over sequences) times the number of predicted positions, so
    that after the trainer's division by the sum of the sample sizes the update follows the sum of both means, as in
    BERT. `loss` of the log remains that of the masked LM alone.
    """

    name = "roberta_masked_lm"

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Return (loss in nats, number of predicted positions, sums to log).

        Args:
            model: ours or fairseq's, possibly wrapped for data-parallel training.
            sample: a batch with "net_input", "target" (B, T) holding pad where nothing is predicted, "ntokens" and
                "nsentences"; with "predicted", our models compute the loss without forming all scores.
            reduce: sum the loss over positions; per-position losses are refused.
        """
        self.check_reduction(reduce)
        log = {key: sample[key] for key in ("ntokens", "nsentences")} | {"npositions": sample["target"].numel()}
        if model.training and "predicted" in sample and getattr(model, "computes_masked_lm_loss", False):
            loss, extra = model(**sample["net_input"], predicted=sample["predicted"])
            sample_size = sample["predicted"]["number"]
            sizes = {"num_tokens": sample["ntokens"], "num_pairs": sample["npairs"], "num_predicted": sample_size}
            if "sequence_labels" in sample:
                sizes["num_sequences"] = sample["nsentences"]
            log |= {"flops": model.training_flops(**sizes), "peak_flops": model.peak_flops(), "noutputs": 1}
            log["executed_flops"] = model.executed_flops(**sizes)
            log["graphs"] = model.num_compiled_graphs()
        else:
            is_predicted = sample["target"].ne(self.padding_idx)
            targets = sample["target"][is_predicted]  # (B, T) -> (M,)
            logits, extra = model(**sample["net_input"], masked_tokens=is_predicted)[:2]  # (M, V)
            loss = F.cross_entropy(logits.float(), targets, reduction="sum")
            sample_size = targets.numel()
            if not model.training:
                log["num_correct"] = logits.argmax(dim=-1).eq(targets).sum()
                log["num_counted"] = sample_size
        log |= {"loss": loss.detach(), "sample_size": sample_size}
        for task, labels in sample.get("sequence_labels", {}).items():
            sum_of_task, sums = sequence_loss(extra["sequence_logits"][task], labels, task=task)
            # The mean over the sequences, times what the trainer divides by: as in BERT, the sum of two means.
            loss = loss + sum_of_task * (sample_size / len(labels))
            log |= sums
        return loss, sample_size, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log loss, perplexity and accuracy from the sums of all ranks."""
        log_masked_lm(logging_outputs)


def sequence_loss(logits: torch.Tensor, labels: torch.Tensor, *, task: str) -> tuple[torch.Tensor, dict[str, Any]]:
    """Summed cross-entropy () of the classes of sequences in nats, and sums to log (`log_sequence_tasks`).

    Args:
        logits: of each sequence (S, C); those beyond the B sequences belong to the padding of a packed row.
        labels: the right classes (B,).
        task: the name of the figures in the log.
    """
    logits = logits[: len(labels)].float()  # (S, C) -> (B, C)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    num_correct = logits.argmax(dim=-1).eq(labels).sum()
    sums = {LOSS: loss.detach(), CORRECT: num_correct, COUNTED: len(labels)}
    return loss, {f"{key}{task}": value for key, value in sums.items()}
