"""Criterions: from a model and a batch to a loss, its denominator and what is logged.

masked_lm             pretraining
finetuning            the names and options of fine-tuning
base                  what they share; a loss for each kind
losses                of labels, numbers, ranking, options, tags, spans, sentences
embedding             of vectors of texts that belong together
validation            outputs of a validation, of all ranks -> the metrics of the kind
metrics               sums from all workers -> the figures of the log
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.criterions import finetuning as finetuning
from roberta_plugin.criterions import masked_lm as masked_lm
