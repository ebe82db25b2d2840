"""Tasks: the options, the vocabulary and the datasets of one kind of training.

masked_lm          pretraining                          masked_lm_options    its options    masked_lm_checks   refusals
input_formats      blocks, or what extensions make of lines
joined_options     options of a task with those that extensions add
growth             blocks and batches that grow with the number of updates
packing            packed rows where the options leave it open
finetuning         the task of fine-tuning              finetuning_options   its options
trainings          the names that extensions give it, registered with fairseq
block_task         what all tasks share                 block_task_checks    fairseq's own options: refused values, and
                                                                             those without effect
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.tasks import finetuning as finetuning
from roberta_plugin.tasks import masked_lm as masked_lm
