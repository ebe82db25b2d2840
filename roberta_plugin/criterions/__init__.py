"""Criterions: from a model and a batch to a loss, its denominator and what is logged.

masked_lm             pretraining
finetuning            fine-tuning: the loss of the kind    finetuning_options   its options
base                  sums from all workers -> the figures of the log; outputs of a validation -> the kind's metrics
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.criterions import finetuning as finetuning
from roberta_plugin.criterions import masked_lm as masked_lm
