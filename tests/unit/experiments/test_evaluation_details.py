"""Details of evaluations as a report with plots."""

from roberta_plugin.experiments.evaluation import Evaluation
from roberta_plugin.experiments.evaluation_details import write_details
from roberta_plugin.pictures import drawable

DETAILS = {
    "num_examples": 1200,
    "intervals": {"accuracy": [81.04, 88.96], "mae": [10.0, 0.0123456]},
    "baseline": {"accuracy": 40.0, "mae": 20.0},
    "classes": [
        {"label": "a|b", "precision": 90.0, "recall": 50.0, "f1": 64.3, "support": 1000},
        {"label": "$c", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 200},
    ],
    "confusion": {"labels": ["a|b", "$c"], "counts": [[900, 100], [200, 0]]},
}


def evaluation(**changes):
    metrics = {"accuracy": 85.0, "mae": 12.3456, "threshold": 0.37}
    found = {"task": "custom", "split": "valid", "data": "runs/x/data", "details": DETAILS, **changes}
    return Evaluation(members=[{}], median=metrics, ensemble=metrics, **found)


def test_a_report_shows_all_that_is_known(tmp_path):
    path = write_details([evaluation(), evaluation(split="test", details={})], tmp_path, table="| the table |\n")
    text = path.read_text()
    for part in (
        "| the table |",
        "## valid: 1,200 examples",
        "| accuracy | 85.0 | 81.0 to 89.0 | 40.0 |",
        "Threshold: a probability of 0.37.",
        "| a\\|b | 90.0 | 50.0 | 64.3 | 1,000 |",
        "| mae | 12.35 | 10 to 0.01235 | 20 |",
        "![right and predicted labels](confusion_valid.png)",
    ):
        assert part in text, part
    assert "## test" not in text
    assert (tmp_path / "confusion_valid.png").read_bytes().startswith(b"\x89PNG")


def test_without_details_nothing_is_written(tmp_path):
    assert write_details([evaluation(details={})], tmp_path, table="") is None
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_of_many_labels_is_not_drawn(tmp_path):
    labels = [f"label {number}" for number in range(60)]
    confusion = {"labels": labels, "counts": [[0] * 60] * 60}
    write_details([evaluation(details={**DETAILS, "confusion": confusion})], tmp_path, table="")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]


def test_a_label_that_the_font_lacks_is_drawn_by_its_code_and_without_a_warning(tmp_path, recwarn):
    names = ["\N{SLIGHTLY SMILING FACE} $1", "plain"]
    write_details(
        [evaluation(details={**DETAILS, "confusion": {"labels": names, "counts": [[1, 2], [3, 4]]}})],
        tmp_path,
        table="",
    )
    assert [str(each.message) for each in recwarn] == []
    assert drawable(names[0]) == r"U+1F642 \$1"
