"""Criterions: from a model and a batch to a loss, its denominator and what is logged.

masked_lm             pretraining
finetuning            the names and options of fine-tuning; a loss for each kind
losses                of labels, numbers, ranking, options, tags, spans, sentences, and of texts that belong together
base                  sums from all workers -> the figures of the log; outputs of a validation -> the kind's metrics
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.criterions import finetuning as finetuning
from roberta_plugin.criterions import masked_lm as masked_lm
