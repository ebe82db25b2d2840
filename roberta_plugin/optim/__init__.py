"""Optimizers for fairseq's trainer."""

from . import adamw as adamw
