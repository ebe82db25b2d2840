"""`roberta pretrain` on text: from a file to a model that answers, and what a second start does."""

import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from roberta_plugin.cli import main
from roberta_plugin.cli.pretrain import show_results
from tests.tiny_corpus import command, run, run_here

pytestmark = pytest.mark.integration

# So small a text is known from its counts, and no update after the first would be better.
SHORT = ("--recipe", "tour", "--init-attention", "neighbors", "--hours", "1e-6", "--seed", "3")


def pretrain(*words, start=run):
    return start([*command("roberta"), "pretrain", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pretrain")


@pytest.fixture(scope="module")
def trained(folder):
    text = folder / "my text.txt"
    sentences = [
        "The quick brown fox jumps over the lazy dog of my neighbour.",
        "A small cat sleeps on the old red sofa.",
    ]
    text.write_text("".join(f"{sentences[number % 2]}\nLine {number}.\n\n" for number in range(200)))
    return pretrain(text, "--output-dir", folder / "run", *SHORT)


def test_a_text_becomes_a_tokenizer_a_data_bin_and_a_model(folder, trained):
    assert trained.returncode == 0, trained.stderr[-3000:]
    for said in (
        "recipe   tour",
        "because  named by --recipe",
        "passes over the text",
        "--seed 3",
        "Evaluation on",
        "Next:",
    ):
        assert said in trained.stdout
    assert trained.stdout.count("--seed") == 1
    assert "of the masked tokens correctly" in (folder / "run" / "report.md").read_text()
    (folder / "in.txt").write_text("The quick brown <mask> jumps.\n")
    answered = run(
        [*command("roberta"), "predict", str(folder / "run" / "checkpoints"), "--input", str(folder / "in.txt")]
    )
    assert answered.returncode == 0, answered.stderr[-3000:]


def test_the_card_of_an_export_has_the_results_of_its_pretraining(folder, trained, tmp_path):
    assert trained.returncode == 0
    assert (
        main(
            ["export", str(folder / "run" / "checkpoints"), "--to", "huggingface", "--output-dir", str(tmp_path / "hf")]
        )
        == 0
    )
    evaluation = (tmp_path / "hf" / "README.md").read_text().split("## Evaluation")[1].split("## Limitations")[0]
    assert "| perplexity |" in evaluation and "loss.png" not in evaluation
    weights, config = (tmp_path / "hf" / name for name in ("model.safetensors", "config.json"))
    assert weights.stat().st_mode == config.stat().st_mode, "whoever reads one file of a model reads the others"
    report = folder / "run" / "report.json"
    before = report.read_text()
    report.write_text(before.replace('"updates": 20', '"updates": 10'))  # this checkpoint is another
    main(
        ["export", str(folder / "run" / "checkpoints"), "--to", "huggingface", "--output-dir", str(tmp_path / "other")]
    )
    report.write_text(before)
    assert "| perplexity |" not in (tmp_path / "other" / "README.md").read_text()


def test_a_data_bin_without_a_tokenizer_gets_its_scores(folder, trained, capsys):
    assert trained.returncode == 0
    bare = folder / "bare"  # as fairseq-preprocess writes it
    bare.mkdir()
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        (bare / name).symlink_to(folder / "run" / "data-bin" / name)
    options = SimpleNamespace(
        save_dir=folder / "run" / "checkpoints", tokens_per_sample=32, sample_break_mode="none", input_format=None
    )
    show_results(folder / "run", SimpleNamespace(parsed=options, on_gpu=False, command=["x"]), f"{folder},{bare}")
    said = capsys.readouterr().out
    assert "no masks are filled" in said and "of the masked tokens correctly" in said
    assert "roberta fill-mask" not in said and "Copy the files of yours there" in said, (
        "what cannot work is not advised"
    )


def test_the_report_is_about_the_checkpoint_that_what_follows_takes(folder, trained, tmp_path):
    assert trained.returncode == 0
    shutil.copytree(folder / "run" / "checkpoints", tmp_path / "run" / "checkpoints")
    state = torch.load(tmp_path / "run" / "checkpoints" / "checkpoint_last.pt", weights_only=True)
    state["optimizer_history"][-1]["num_updates"] = 10  # as if the loss had risen since
    torch.save(state, tmp_path / "run" / "checkpoints" / "checkpoint_best.pt")
    options = SimpleNamespace(
        save_dir=tmp_path / "run" / "checkpoints", tokens_per_sample=32, sample_break_mode="none", input_format=None
    )
    plan = SimpleNamespace(parsed=options, on_gpu=False, command=["x"])
    show_results(tmp_path / "run", plan, str(folder / "run" / "data-bin"))
    assert "the best checkpoint, of 10 updates, predicts them" in (tmp_path / "run" / "report.md").read_text()
    assert "the last checkpoint, of 20 updates, predicts them" in (folder / "run" / "report.md").read_text()
    words = ["export", str(tmp_path / "run"), "--to", "huggingface", "--output-dir", str(tmp_path / "hf")]
    assert main(words) == 0
    assert "| perplexity |" in (tmp_path / "hf" / "README.md").read_text()


def test_the_same_command_has_nothing_to_do_and_another_is_refused_by_its_options(folder, trained, capsys):
    data, files = folder / "my text.txt", sorted(folder.rglob("*.*"))
    here = partial(run_here, capture=capsys)
    other = pretrain(data, "--output-dir", folder / "run", *SHORT, "--lr", "1e-2", start=here)
    assert other.returncode == 2
    assert "--lr was 1.5e-3 and is 1e-2 now" in other.stderr and "Traceback" not in other.stderr
    assert sorted(folder.rglob("*.*")) == files
    again = pretrain(data, "--output-dir", folder / "run", *SHORT)
    assert again.returncode == 0, again.stderr[-3000:]
    assert "This training is finished" in (folder / "run" / "train.log").read_text()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere.txt"], ["nowhere.txt"]),
        (["tests", "--recipe", "tour"], ["tests", "dict.txt"]),
        (["{data}", "--valid", "x.txt"], ["--valid", "data-bin"]),
        (["{data}", "--recipe", "turo"], ["turo", "tour"]),
        (["{data}", "--recipe", "base"], ["base", "GPU", "--recipe"]),
        (["{data}", "--recipe", "tour", "--arhc", "x"], ["--arhc"]),
        (["{data}", "--recipe", "tour", "--lr", "x"], ["--lr"]),
        (["{data}", "--hours", "-1"], ["--hours", "-1"]),
        (["--lr", "1e-3", "{data}", "--recipe", "tour"], ["1e-3", "Options of fairseq-train come after the data"]),
        (["{data}", "--recipe", "half-hour", "--lr", "1e-3,2e-3", "--dry-run"], ["--lr", "--lr-stages"]),
    ],
)
def test_what_cannot_begin_is_one_sentence_and_nothing_is_trained(words, named, tiny_data_bin, tmp_path, capfd):
    given = [str(tiny_data_bin) if word == "{data}" else word for word in words]
    try:
        code = main(["pretrain", *given, "--output-dir", str(tmp_path / "run"), "--cpu"])
    except SystemExit as stop:
        code = stop.code
    said = capfd.readouterr().err
    assert code == 2 and "Traceback" not in said
    assert all(word in said for word in named), said
    assert not (tmp_path / "run" / "checkpoints").exists()
