"""Tables whose cells hold any character, the two files of a report, plots of labels in any script."""

import math
import warnings

import pytest

from roberta_plugin.reports import Line, Panel, drawable, markdown_table, plot, write_report


def test_a_table_holds_any_cell():
    table = markdown_table(["a|b", "c"], [["x\n y", "1"], ["back\\slash", ""]])
    assert table == "| a\\|b | c |\n| --- | --- |\n| x y | 1 |\n| back\\\\slash |  |"


def test_a_report_is_a_text_and_its_facts(tmp_path):
    write_report(tmp_path / "fold.1", "# A\n", {"loss": math.nan})
    assert (tmp_path / "fold.1.md").read_text() == "# A\n"
    assert (tmp_path / "fold.1.json").read_text() == '{\n  "loss": null\n}\n'


def test_labels_of_any_script_are_drawn_without_a_warning_of_the_font(tmp_path):
    assert drawable("\u65e5 for $5") == r"U+65E5 for \$5"
    assert drawable("caf\u00e9") == "caf\u00e9"
    line = Line([1, 2, 3], [2.0, math.nan, 1.0], {"label": "\U0001f926\u200d\u2642 $5", "marker": "o"})
    panels = [Panel(y_label="loss", lines=[line], levels={"\u65e5": 1.5}), Panel(y_label="tokens/s", lines=[])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("first.png", "again.png"):
            plot(tmp_path / name, panels, x_label="updates", width=3, height=3)
    first, again = ((tmp_path / name).read_bytes() for name in ("first.png", "again.png"))
    assert first.startswith(b"\x89PNG") and first == again


def test_a_plot_that_fails_leaves_the_earlier_one(tmp_path):
    (tmp_path / "a.png").write_bytes(b"earlier")
    with pytest.raises(ValueError, match="shape"):
        plot(tmp_path / "a.png", [Panel(y_label="", lines=[Line([1, 2], [1])])], x_label="", width=2, height=2)
    assert (tmp_path / "a.png").read_bytes() == b"earlier"
