"""Tasks: the options, the vocabulary and the datasets of one kind of training.

masked_lm             pretraining                  masked_lm_options   its options, and their checks
growth                blocks and batches that grow with the number of updates
finetuning            what the fine-tuning tasks share, with their options
finetuning_tasks      the registered ones: texts and pairs, spans, options, tags, sentences
block_task            what all tasks share
epoch_iterator        batches of an epoch for each rank, with the position kept in blocks
fairseq_options       fairseq's own options: refused values, and options without effect here
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.tasks import finetuning_tasks as finetuning_tasks
from roberta_plugin.tasks import masked_lm as masked_lm
