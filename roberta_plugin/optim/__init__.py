"""Optimizers and learning-rate schedules for fairseq's trainer.

adamw            roberta_adamw: torch's fused AdamW with the paper's settings
master_weights   fp32 copies of half-precision weights
stages           linear_stages: the learning rate at given updates, straight lines between
"""

from roberta_plugin import fairseq_import  # noqa: F401  # isort: skip  -- before anything else of fairseq
from roberta_plugin.optim import adamw as adamw
from roberta_plugin.optim import stages as stages
