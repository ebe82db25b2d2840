"""Labels that the font cannot draw are written by their code points, without a warning."""

import io
import warnings

import numpy as np

from roberta_plugin.experiments.evaluation_report import plot_confusion
from roberta_plugin.pictures import drawable


def test_labels_of_any_script_are_drawn_without_a_warning_of_the_font():
    assert drawable("\u65e5 for $5") == r"U+65E5 for \$5"
    assert drawable("caf\u00e9") == "caf\u00e9"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = io.BytesIO()
        plot_confusion(["\U0001f926\u200d\u2642", "\u65e5"], np.eye(2, dtype=int), file, title="valid")
    assert file.getvalue().startswith(b"\x89PNG")
