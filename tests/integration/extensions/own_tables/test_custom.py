"""Own data by one command: a table in, a tuned, evaluated, predicting and exported model out."""

import csv
import json
import os
import pty
import re
import select
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from roberta_plugin.cli import main
from roberta_plugin.conversion.convert import ExportSettings, export_model
from roberta_plugin.experiments.inference import load_model
from roberta_plugin.finetuning.examples_dataset import ExamplesDataset
from roberta_plugin.finetuning.options import CustomOptions
from roberta_plugin.finetuning.preparation import PrepareSettings, prepare
from roberta_plugin.hub import RobertaHub
from roberta_plugin.launch.log import parse_line
from roberta_plugin.prediction.predict import PredictSettings, iterate_predictions
from tests.conftest import REPOSITORY
from tests.forked_training import ForkedTrainings, forking
from tests.tiny_benchmarks import write_tokenizer
from tests.tiny_corpus import command, environment, logged, run, run_here, run_ranks
from tests.tiny_glue import write_task
from tests.tiny_tables import rows_of, write_csv, write_json_lines

pytestmark = pytest.mark.integration

SIZES = ("--arch", "fast_roberta_tiny", "--encoder-layers", "1", "--encoder-embed-dim", "32", "--max-positions", "128")
SIZES += ("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "2")
# kind -> what it is judged by; the baselines are 0, about 50, 35 and 20
LEARNED = {"regression": "pearson", "pair": "accuracy", "multiple-choice": "accuracy", "question-answering": "tuned_f1"}
LEARNED["tagging"] = "f1"
FILES = ("finetune.yaml", "start.json")
NO_DROPOUT = ("dropout=0", "attention-dropout=0", "pooler-dropout=0")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with a tokenizer, a checkpoint after two updates of pretraining, and a table of each kind."""
    folder = tmp_path_factory.mktemp("custom")
    tokenizer = write_tokenizer(folder / "tokenizer")
    (folder / "text.txt").write_text("good bad good\nbad good bad\n\n" * 40)
    words = ["--train", str(folder / "text.txt"), "--tokenizer", str(tokenizer), "--output-dir", str(folder / "bin")]
    assert main(["binarize", *words, "--no-progress"]) == 0
    done = run(
        [
            *command("fairseq-train"),
            *(str(folder / "bin"), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", *SIZES),
            *("--task", "roberta_masked_lm", "--criterion", "roberta_masked_lm", "--tokens-per-sample", "128"),
            *("--batch-size", "4", "--optimizer", "roberta_adamw", "--lr", "1e-3", "--max-update", "2"),
            *("--disable-validation", "--save-dir", str(folder / "pretrained")),
        ]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    long = [{"text": f"so good{' good' * 90} {word}", "label": "pos"} for word in ("a", "we")]
    write_csv(folder / "classification.csv", [*opinions(300), *long])
    write_csv(folder / "multi-label.csv", rows_of("multi-label", 300))
    return folder


def opinions(number, *, seed=0):
    """Rows of two labels, as many as have an opinion."""
    return [row for row in rows_of("classification", number, seed=seed) if row["label"] != "none"]


def finetune(work, name, *options, task="custom", lr="3e-3", start=run):
    words = ["--model", str(work / "pretrained" / "checkpoint_last.pt")]  # whose tokenizer is found with its data
    words += ["--output-dir", str(work / name), "--max-length", "64", "--only", f"lr={lr}", "--set", *NO_DROPOUT[:1]]
    words += [word for each in NO_DROPOUT[1:] for word in ("--set", each)]
    return start([*command("roberta"), "finetune", task, *words, *options])


def run_on_terminal(arguments):
    """Run a command whose output goes to a terminal, one that does not tell its size."""
    ours, its = pty.openpty()
    given = {"cwd": REPOSITORY, "environment": forking(environment(), REPOSITORY), "log": Path(os.ttyname(its))}
    forked = ForkedTrainings([arguments], **given)
    shown = b""
    while (codes := forked.codes()) is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            shown += os.read(ours, 65536)
    os.close(ours), os.close(its)
    return subprocess.CompletedProcess(arguments, codes[0], shown.decode().replace("\r\n", "\n"), "")


@pytest.fixture(scope="module")
def tuned(work):
    write_json_lines(work / "test.jsonl", opinions(50, seed=5))
    options = ("--train", str(work / "classification.csv"), "--test", str(work / "test.jsonl"))
    options += ("--quick", "--epochs", "12", "--class-weights", "balanced", "--select", "loss")
    options += ("--calibrate", "--tune-threshold", "mcc")
    done = finetune(work, "tuned", *options, start=run_on_terminal)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\| custom \| valid \| tuned_macro_f1 \|", done.stdout)
    assert re.search(r"seed-1: +\d+%.*\d+/\d+ updates, .* left, loss=\d", done.stdout), "no bar of the run"
    assert re.search(r"all: +\d+%.* 0\.\d of 1 runs", done.stdout), "no bar of all runs"
    before, after = done.stdout.split("| custom | valid |", 1)
    report = (work / "tuned" / "results" / "report.md").read_text()
    for shown in (before, after, report):  # before the training, below its table, and in the report
        assert re.search(r"train: 2 of \d+ texts are longer than 64 tokens and were cut \(longest 9\d\)", shown), shown
    return work / "tuned"


def test_the_chosen_metric_selects_the_checkpoint_in_its_direction(tuned):
    (log,) = tuned.glob("runs/*/seed-*/log.txt")
    records = [record.values for line in log.read_text().splitlines() if (record := parse_line(line))]
    losses = [values["loss"] for values in records if "macro_f1" in values]
    assert len(losses) == 12 and losses[0] > min(losses)
    (result,) = tuned.glob("runs/*/seed-*/result.json")
    assert json.loads(result.read_text())["value"] == min(losses)
    kept = torch.load(result.parent / "checkpoints" / "checkpoint_best.pt", weights_only=True)
    assert kept["extra_state"]["best"] == pytest.approx(min(losses))


def test_the_copied_code_is_hidden_and_there_once(tuned):
    assert {path.name for path in tuned.iterdir() if path.name[0] != "."} == {*FILES, "data", "results", "runs"}
    assert [path.relative_to(tuned).parts[0] for path in tuned.rglob("stop_signals.py")] == [".snapshots"]
    assert [path.name for path in (tuned / "runs").glob(".*")] == [".jobs.json.lock"]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (("--set", "warmup-update=10"), ["--warmup-update is unknown", "--warmup-updates"]),
        (("--select", "micro_f1"), ["micro_f1", "mcc, f1, acc_and_f1, roc_auc, average_precision, loss", "f1_neg"]),
        (("--set", "best-checkpoint-metric=macro"), ["best-checkpoint-metric macro", "macro_f1"]),
        (("--kind", "multi-label", "--label-smoothing", "0.1"), ["--label-smoothing goes with", "this is multi_label"]),
    ],
)
def test_what_is_refused_in_a_new_folder_is_named(work, capsys, options, messages):
    folder, here = f"refused{options[0]}", partial(run_here, capture=capsys)
    done = finetune(work, folder, "--train", str(work / "classification.csv"), "--epochs", "1", *options, start=here)
    assert done.returncode == 2
    assert "No such file" not in done.stderr
    for message in messages:
        assert message in done.stderr
    assert not (work / folder / "runs").exists()


def test_a_model_that_gives_one_label_only_is_named_beside_the_baseline(work):
    raw = write_task(work / "glue", "SST-2", train=80, dev=40)
    options = ("--raw", str(raw), "--quick", "--epochs", "1")
    done = finetune(work, "SST-2", *options, task="SST-2", lr="1e-9")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sentence = re.search(r"SST-2, valid: the model (gives the label [01] to every input|is no better).*", done.stdout)
    assert sentence, done.stdout
    assert "to every input" in sentence[0]
    assert sentence[0] in (work / "SST-2" / "results" / "results.md").read_text(), "the model card takes its table here"
    (row,) = re.findall(r"\| SST-2 \| valid \| accuracy \| (.*?) \|\n", done.stdout)
    train, dev = (
        [line.split("\t")[1] for line in (raw / "SST-2" / f"{name}.tsv").read_text().splitlines()[1:]]
        for name in ("train", "dev")
    )
    assert row.split(" | ")[4] == f"{100 * dev.count(max(set(train), key=train.count)) / len(dev):.1f}"


def test_a_set_that_can_be_learned_is_learned(tuned):
    found = json.loads((tuned / "results" / "evaluation_test.json").read_text())
    assert found["ensemble"]["tuned_accuracy"] > 90 < found["tf_idf"]["tuned_accuracy"]
    low, high = found["details"]["intervals"]["tuned_accuracy"]
    assert low <= found["ensemble"]["tuned_accuracy"] <= high
    assert found["details"]["baseline"]["tuned_accuracy"] < 75
    assert len(list(tuned.glob("runs/*/seed-*"))) == 1, "--quick is one run"


def test_the_report_shows_intervals_and_labels(tuned):
    report = (tuned / "results" / "report.md").read_text()
    for part in (
        "| metric | model | 95 % interval | baseline | TF-IDF |",
        "| label | precision |",
        "## valid: ",
        "## test: ",
        "| right / predicted |",
    ):
        assert part in report


def test_predictions_name_the_labels_and_are_those_of_the_evaluation(tuned, work):
    """The rows come in a table whose columns have other names than those of the training."""
    write_csv(work / "new.csv", [{"who": f"w{n}", "said": row["text"]} for n, row in enumerate(opinions(50, seed=5))])
    words = ["--input", str(work / "new.csv"), "--text-column", "said", "--id-column", "who", "--no-progress"]
    done = run([*command("roberta"), "predict", str(tuned), *words])
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [f"w{n}" for n in range(len(answers))]
    found = [answer["label"] for answer in answers]
    lines = (tuned / "results" / "test.predictions.jsonl").read_text().splitlines()
    assert found == [json.loads(line)["prediction"] for line in lines]
    assert json.loads((tuned / "results" / "evaluation_valid.json").read_text())["ensemble"].keys() > {"temperature"}
    for answer, line in zip(answers, lines, strict=True):  # with the temperature
        assert answer["probability"] == pytest.approx(json.loads(line)["probability"], abs=1e-4)
    assert set(found) == {"pos", "neg"}


def test_the_model_is_exported_with_its_labels_and_a_card_of_its_results_and_data(tuned, work):
    words = [str(tuned), "--to", "huggingface", "--output-dir", str(work / "exported")]
    done = run([*command("roberta"), "export", *words])
    assert done.returncode == 0, done.stderr[-3000:]
    config = json.loads((work / "exported" / "config.json").read_text())
    assert config["id2label"] == {"0": "neg", "1": "pos"}
    numbers = r"the temperature [\d.]+ and the threshold [\d.]+ of pos"
    assert re.search(rf"note: The model was evaluated with {numbers}. `roberta predict` applies it", done.stdout)
    card = (work / "exported" / "README.md").read_text()
    assert "\n# RoBERTa tuned\n" in card
    assert (tuned / "results" / "results.md").read_text().strip() in card
    data = card.partition("## Data")[2].partition("## Training")[0]
    assert re.search(r"Fine-tuned on: custom, classification\n", data)
    assert "- Files: classification.csv, test.jsonl\n" in data
    assert re.search(r"Split train: [\d,]+ examples, [\d,]+ tokens\n", data)
    assert "Split valid: " in data
    settings = PredictSettings(model=work / "exported", input=work / "new.csv", text_column="said")
    lines = (tuned / "results" / "test.predictions.jsonl").read_text().splitlines()
    for answer, line in zip(iterate_predictions(settings), lines, strict=True):  # with the temperature
        assert answer["probabilities"] == pytest.approx(json.loads(line)["probabilities"], abs=1e-4)


@pytest.fixture(scope="module")
def opinions_in_long_texts(work):
    """The opinion is a word somewhere in a text of 4 inputs; a development set of as long ones."""
    rng = np.random.default_rng(3)
    for name, number in (("long", 300), ("long-dev", 60)):
        rows = []
        for index in range(number):
            words = rng.choice(["a", "we", "is", "so", "to", "on"], 40).tolist()
            label = ("good", "bad")[index % 2]
            words.insert(int(rng.integers(12, 38)), " ".join([label] * 3))
            rows.append({"text": " ".join(words), "label": label})
        write_csv(work / f"{name}.csv", rows)
    options = ("--train", str(work / "long.csv"), "--valid", str(work / "long-dev.csv"), "--max-length", "32")
    return (*options, "--quick", "--epochs", "6", "--long-texts")


def test_long_texts_are_learned_in_windows_and_predicted_alike_by_model_and_export(work, opinions_in_long_texts):
    done = finetune(work, "windows", *opinions_in_long_texts, "windows", "--window-pooling", "max")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"train: 300 of 300 texts are longer than 32 tokens and were divided into windows", done.stdout)
    found = json.loads((work / "windows/results/evaluation_valid.json").read_text())
    assert found["ensemble"]["accuracy"] > 90
    folders = {"checkpoint": work / "windows", "output_dir": work / "windows-exported"}
    (note,) = export_model(ExportSettings(**folders, to="huggingface")).notes
    assert "reads only windows of texts longer than 32 tokens" in note
    lines = (work / "windows/results/valid.predictions.jsonl").read_text().splitlines()
    given = [json.loads(line)["probabilities"] for line in lines]
    for model in folders.values():
        settings = PredictSettings(model=model, input=work / "long-dev.csv", batch_tokens=100)
        answers = list(iterate_predictions(settings))
        assert [answer["probabilities"] for answer in answers] == [pytest.approx(each, abs=1e-5) for each in given]
        assert not any("truncated" in answer for answer in answers)
    hub = RobertaHub.from_pretrained(work / "windows")
    with open(work / "long-dev.csv", newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    found = hub.predict(hub.heads[0], texts).exp().tolist()
    assert [dict(zip(hub.labels, row, strict=True)) for row in found] == [
        pytest.approx(each, abs=1e-5) for each in given
    ]
    with pytest.raises(ValueError, match="--to onnx cannot express: use --to huggingface"):
        export_model(ExportSettings(**folders, to="onnx"))


@pytest.mark.slow
def test_a_training_of_adapters_resumes_in_the_same_bits(work, tmp_path):
    settings = PrepareSettings(
        task="custom",
        raw=work,
        tokenizer=work / "tokenizer",
        output_dir=tmp_path / "data",
        max_length=64,
        options=CustomOptions(train="classification.csv"),
    )
    prepare(settings)
    name = "roberta_sentence_prediction"
    words = [*command("fairseq-train"), str(tmp_path / "data")]
    words += ["--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu"]
    words += ["--task", name, "--criterion", name, "--optimizer", "roberta_adamw", "--lr", "1e-3", *SIZES]
    words += ["--batch-size", "16", "--disable-validation", "--lora-rank", "4", "--lora-targets", "q_proj,fc2"]
    words += ["--finetune-from-model", str(work / "pretrained" / "checkpoint_last.pt")]
    states = []
    for folder, parts in (("whole", ("6",)), ("parts", ("3", "6"))):
        for updates in parts:
            done = run([*words, "--save-dir", str(tmp_path / folder), "--max-update", updates])
            assert done.returncode == 0, done.stderr[-3000:]
        states.append(torch.load(tmp_path / folder / "checkpoint_last.pt", weights_only=False))
    whole, parts = states
    assert all(torch.equal(value, parts["model"][name]) for name, value in whole["model"].items())
    start = torch.load(work / "pretrained" / "checkpoint_last.pt", weights_only=False)["model"]
    kept = [name for name in start if name.startswith("encoder.sentence_encoder.")]
    assert all(torch.equal(start[name], whole["model"][name]) for name in kept)
    assert any(value.any() for name, value in whole["model"].items() if name.endswith("lora_B"))
    moments = [state["last_optimizer_state"]["state"] for state in states]
    assert sum(each["exp_avg"].numel() for each in moments[0].values()) < 0.3 * sum(
        start[name].numel() for name in kept
    )


@pytest.mark.slow
def test_folds_give_mean_and_spread_for_several_labels(work):
    options = ("--kind", "multi-label", "--train", str(work / "multi-label.csv"))
    done = finetune(work, "folds", *options, "--folds", "2", "--valid-share", "0.2", "--quick", "--epochs", "25")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = json.loads((work / "folds" / "folds.json").read_text())
    (f1,) = [row for row in rows if (row["split"], row["metric"]) == ("held_out", "tuned_micro_f1")]
    assert f1["folds"] == 2 and f1["mean"] > 90
    values = [
        json.loads((work / "folds" / f"fold-{number}-of-2/results/evaluation_held_out.json").read_text())["median"]
        for number in (1, 2)
    ]
    assert f1["mean"] == pytest.approx(np.mean([each["tuned_micro_f1"] for each in values]))
    assert f1["deviation"] == pytest.approx(np.std([each["tuned_micro_f1"] for each in values], ddof=1))
    ids = [
        json.loads(line)["id"]
        for number in (1, 2)
        for line in (work / "folds" / f"fold-{number}-of-2/results/held_out.predictions.jsonl").read_text().splitlines()
    ]
    assert sorted(map(int, ids)) == list(range(2, 302)), "each row is predicted once"
    assert "| held_out | tuned_micro_f1 |" in done.stdout and "its mean is honest" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNED)
def test_the_other_kinds_are_learned_too(work, kind):
    rows = rows_of(kind, 400)
    path = write_json_lines(work / f"{kind}.jsonl", rows)
    options = ["--kind", kind, "--train", str(path), *(["--text-pair-column", "pair"] if kind == "pair" else [])]
    done = finetune(work, kind, *options, "--quick", "--epochs", "20")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((work / kind / "results" / "evaluation_valid.json").read_text())
    assert found["ensemble"][LEARNED[kind]] > 90, found["ensemble"]
    write_json_lines(work / "new.jsonl", rows[:5])
    done = run([*command("roberta"), "predict", str(work / kind), "--input", str(work / "new.jsonl"), "--no-progress"])
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if kind == "regression":
        assert all(900 < answer["score"] < 2100 for answer in answers), "on the scale of the table"
    elif kind == "tagging":
        assert [answer["words"] for answer in answers] == [row["tokens"] for row in rows[:5]]
        assert sum(answer["tags"] == row["tags"] for answer, row in zip(answers, rows, strict=False)) >= 4
    else:
        name = {"pair": "label"}.get(kind, "answer")
        wanted = [row["answer" if kind == "question-answering" else "label"] for row in rows[:5]]
        assert sum(answer[name] == each for answer, each in zip(answers, wanted, strict=True)) >= 3


def test_two_ranks_that_accumulate_have_the_gradient_of_torch_s_weighted_mean(work, tmp_path):
    """24 examples on 2 ranks with 3 batches of 4 each: one update."""
    rows = rows_of("classification", 24, seed=2)
    settings = PrepareSettings(
        task="custom",
        raw=tmp_path,
        tokenizer=work / "tokenizer",
        output_dir=tmp_path / "data",
        max_length=64,
        options=CustomOptions(train="my.csv", valid="my.csv", class_weights="balanced"),
    )
    write_csv(tmp_path / "my.csv", rows)
    prepared = prepare(settings)
    save_dir = tmp_path / "checkpoints"
    task = "roberta_sentence_prediction"
    train = [
        *command("fairseq-train"),
        *(str(prepared.folder), "--user-dir", str(REPOSITORY / "roberta_plugin"), "--cpu", "--seed", "3", *SIZES),
        *(
            *("--task", task, "--criterion", task, "--optimizer", "roberta_adamw", "--lr", "0"),
            *("--save-dir", str(save_dir)),
        ),
        *("--dropout", "0", "--attention-dropout", "0", "--pooler-dropout", "0", "--batch-size", "4"),
        *("--update-freq", "3", "--required-batch-size-multiple", "1", "--max-update", "1", "--clip-norm", "0"),
        *("--log-format", "json", "--log-file", str(save_dir) + ".log", "--disable-validation"),
    ]
    run_ranks(train, 2)
    (record,) = logged(save_dir, "train")

    model, _ = load_model(save_dir / "checkpoint_last.pt", prepared)
    dataset = ExamplesDataset(prepared.split("train"), pad_id=1, vocab_size=len(prepared.vocabulary), seed=1)
    batch = dataset.__getitems__([(1, index) for index in range(24)])
    logits = model(**batch["net_input"], features_only=True, classification_head_name="sentence_classification_head")[0]
    weights, labels = torch.tensor(prepared.settings["weights"]), batch["columns"]["label"]
    assert weights.max() > 1.3 * weights.min()
    norms = {}
    for name, weight in (("weighted", weights), ("plain", None)):
        model.zero_grad()
        loss = F.cross_entropy(logits, labels, weight)
        loss.backward(retain_graph=True)
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        norms[name] = (loss.item(), torch.stack([gradient.norm() for gradient in gradients]).norm().item())
    found = float(record["train_loss"]), float(record["train_gnorm"])
    assert found == pytest.approx(norms["weighted"], abs=2e-3)
    assert found[1] != pytest.approx(norms["plain"][1], abs=1e-2)
