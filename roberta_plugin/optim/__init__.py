"""Optimizers for fairseq's trainer.

adamw            roberta_adamw: torch's fused AdamW with the paper's settings
master_weights   fp32 copies of half-precision weights
"""

from roberta_plugin.optim import adamw as adamw
