"""Tasks: an option group, the vocabulary and the datasets of one kind of training."""

from . import masked_lm as masked_lm
