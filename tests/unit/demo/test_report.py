import json

import pytest

from roberta_plugin.demo.report import as_markdown, summary, write_report

SCORES = {"model": {"accuracy": 30.0, "perplexity": 90.0}, "unigram": {"accuracy": 5.0, "perplexity": 700.0}}
RESULTS = {
    "corpus": {"train_bytes": 5_000_000, "train_documents": 2000, "test_bytes": 200_000, "test_documents": 100},
    "vocabulary": {"size": 8009},
    "plan": {"num_updates": 40},
    "pretrain": {"num_updates": 40, "planned_updates": 40, "command": ["fairseq-train", "two words", "--x"]},
    "evaluation": {
        **SCORES,
        "num_predictions": 12345,
        "most_frequent": [" the", ",", "."],
        "answers": [
            {"text": "A <mask> of strings.", "word": "list", "words": ["list", "set"], "probabilities": [0.5, 0.25]},
            {"text": "The <mask> is open.", "word": "file", "words": ["value", "set"], "probabilities": [0.5, 0.25]},
        ],
    },
    "seconds": {"corpus": 20.0, "pretrain": 280.0},
    "settings": {"minutes": 5.0},
}
LOG = [
    f'x | INFO | train_inner | {{"num_updates": "{update}", "loss": "{12 - update / 10}", "wps": "{1000 + update}"}}'
    for update in (10, 20, 30, 40)
] + ['x | INFO | valid | {"valid_num_updates": "40", "valid_loss": "8.5"}']


@pytest.fixture
def folder(tmp_path):
    write_report(tmp_path, results=RESULTS, log_lines=LOG)
    return tmp_path


def test_the_summary_says_by_how_much_the_model_is_better():
    text = summary(SCORES)
    for number in ("30.0 %", "5.0 %", "6.0 times", "+25.0 points", "90.0", "700.0"):
        assert number in text


def test_the_markdown_report_holds_what_was_asked_for(folder):
    text = (folder / "report.md").read_text()
    for words in ("12,345 masked tokens", "1,030 tokens/s", "(loss.png)", "40 of 40", "280 s", "300 s", "`the`"):
        assert words in text, words
    assert "**list** 50%" in text
    assert "(true: file)" in text
    assert "fairseq-train 'two words' --x" in text


def test_the_json_report_holds_the_curves(folder):
    facts = json.loads((folder / "report.json").read_text())
    assert facts["loss_in_bits"]["train"] == {"updates": [10, 20, 30, 40], "values": [11.0, 10.0, 9.0, 8.0]}
    assert facts["loss_in_bits"]["valid"] == {"updates": [40], "values": [8.5]}
    assert facts["tokens_per_second"] == 1030
    assert facts["evaluation"]["model"]["accuracy"] == 30.0


def test_the_plot_is_a_png_with_both_curves(folder):
    content = (folder / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    write_report(folder, results=RESULTS, log_lines=LOG[:2])
    assert (folder / "loss.png").read_bytes() != content


def test_a_resumed_training_says_that_its_time_is_not_all(tmp_path):
    facts = write_report(tmp_path, results=RESULTS, log_lines=[*LOG, "x | INFO | Loaded checkpoint there (epoch 1)"])
    assert facts["num_resumed"] == 1
    assert "the last of 1 resumptions" in (tmp_path / "report.md").read_text()


def test_a_training_that_ran_out_of_time_is_told():
    facts = {**RESULTS, "tokens_per_second": 1, "num_resumed": 0, "machine": {"cores": 2}}
    assert "time was up" not in as_markdown(facts)
    cut = {**facts, "pretrain": {**RESULTS["pretrain"], "num_updates": 30}}
    assert "30 of 40 planned, stopped when the time was up" in as_markdown(cut)
