"""Importing fairseq by way of ours leaves scikit-learn and scipy.stats out, and their functions work all the same."""

import sys

import pytest

from tests.tiny_corpus import run

LATE = """
import sys
import roberta_plugin
roberta_plugin.register()
heavy = ("sklearn", "sklearn.metrics", "scipy.stats")
assert not set(heavy) & set(sys.modules), "imported, or a stand-in is left"

from fairseq.criterions import sentence_prediction as criterion
from fairseq.tasks.audio_classification import sklearn_metrics
assert criterion.f1_score([1, 0, 1], [1, 1, 1]) == 0.8
assert criterion._matthews_corrcoef([1, 0, 1], [1, 0, 1]) == 1.0
assert sklearn_metrics.roc_auc_score([0, 1], [0.2, 0.7]) == 1.0
assert round(criterion.pearsonr([1, 2, 3], [2, 4, 6])[0], 9) == 1.0

import sklearn.metrics, sklearn.linear_model, scipy.stats
assert sklearn.__version__ and sklearn.metrics.f1_score.__module__.startswith("sklearn.")
assert all(sys.modules[name].__file__ for name in heavy)
print("late")
"""

LOADED = """
import sys, scipy.stats, sklearn.metrics
before = [sys.modules[name] for name in ("sklearn", "sklearn.metrics", "scipy.stats")]
import roberta_plugin.fairseq_import
from fairseq.criterions import sentence_prediction as criterion
assert before == [sys.modules[name] for name in ("sklearn", "sklearn.metrics", "scipy.stats")]
assert criterion.f1_score is sklearn.metrics.f1_score and criterion.pearsonr is scipy.stats.pearsonr
print("as before")
"""


@pytest.mark.parametrize(("program", "printed"), [(LATE, "late"), (LOADED, "as before")])
def test_functions_of_packages_are_imported_when_they_are_called(program, printed):
    done = run([sys.executable, "-c", program])
    assert done.stdout.split("\n")[-2:] == [printed, ""], done.stderr
