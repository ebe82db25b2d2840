"""Criterions: from a model and a batch to a loss, its denominator and what is logged."""

from . import masked_lm as masked_lm
