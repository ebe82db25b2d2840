"""The report of the demo: scores, filled masks, the command and the curve."""

from roberta_plugin.pretraining.report import summary, write_report

EVALUATION = {
    "model": {"accuracy": 30.0, "perplexity": 90.0},
    "unigram": {"accuracy": 5.0, "perplexity": 700.0},
    "bigram": {"perplexity": 210.5},
    "num_predictions": 12345,
    "split": "test",
    "answers": [
        {"text": "A <mask> of strings.", "word": "list", "words": ["list", "set"], "probabilities": [0.5, 0.25]}
    ],
}
LOG = [
    f'x | INFO | train_inner | {{"num_updates": "{update}", "loss": "{12 - update / 10}", "wps": "{1000 + update}"}}\n'
    for update in (10, 20, 30, 40)
] + ['x | INFO | valid | {"valid_num_updates": "40", "valid_loss": "8.5"}\n']


def test_the_summary_says_by_how_much_the_model_is_better():
    text = summary(EVALUATION)
    for number in ("30.0 %", "5.0 %", "90.0", "700.0", "210.5"):
        assert number in text


def test_the_report_holds_scores_masks_command_and_curve(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("".join(LOG))
    write_report(tmp_path, evaluation=EVALUATION, command=["fairseq-train", "two words", "--x"], logs=[log])
    text = (tmp_path / "report.md").read_text()
    assert summary(EVALUATION) in text and "12,345 masked tokens" in text and "(loss.png)" in text
    assert "the last checkpoint, of 40 updates, predicts them" in text
    assert "- A <mask> of strings.: list 50%, set 25% (true: list)" in text
    assert "fairseq-train 'two words' --x" in text
    content = (tmp_path / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    log.write_text(LOG[0])
    write_report(tmp_path, evaluation=EVALUATION, command=[], logs=[log])
    assert (tmp_path / "loss.png").read_bytes() != content
