"""A model's outputs beside the constant answer, as `roberta evaluate` compares them."""

import numpy as np

from roberta_plugin.experiments.evaluation import EvaluateSettings, Judge, constant_baseline, no_better_than_constant

RNG = np.random.default_rng(1)


def scored(prepared, outputs):
    """The model's metrics, those of the constant answer, and the sentences."""
    judge = Judge.open(EvaluateSettings(data=prepared.folder, checkpoints=[], output_dir=prepared.folder))
    metrics = judge.score("valid", outputs, judge.options)
    baseline = constant_baseline(judge, "valid", outputs, metrics=metrics, details={}, options=judge.options)
    answer = judge.kind.only_answer(outputs, prepared.split("valid"))
    return metrics, baseline, no_better("valid", [answer], metrics, baseline, selection=judge.selection)


def no_better(*facts, selection="accuracy"):
    return no_better_than_constant(*facts, selection=selection, baseline_name="a constant answer")


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)
