"""Labels that the font cannot draw are written by their code points, without a warning."""

import io
import warnings

from roberta_plugin.pictures import drawable, picture


def test_labels_of_any_script_are_drawn_without_a_warning_of_the_font():
    assert drawable("\u65e5 for $5") == r"U+65E5 for \$5"
    assert drawable("caf\u00e9") == "caf\u00e9"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = io.BytesIO()
        with picture(file, width=2, height=2) as figure:
            figure.add_subplot().set_xticks([0, 1], [drawable("\U0001f926\u200d\u2642"), drawable("\u65e5")])
    assert file.getvalue().startswith(b"\x89PNG")
