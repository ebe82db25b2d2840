"""What every benchmark and every kind of own table keeps, from its files to batches, a loss, metrics and predictions.

The files are those of the golden set; what is particular to a kind or a table has tests of its own beside this one.
"""

import dataclasses
import json
from argparse import Namespace
from itertools import pairwise

import numpy as np
import pytest
import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

import roberta_plugin
from roberta_plugin.experiments.inference import run_model
from roberta_plugin.finetuning.benchmarks import all_tasks, benchmark_of, kind_of, options_for
from roberta_plugin.finetuning.benchmarks.base import COMMON
from roberta_plugin.finetuning.kinds import KINDS
from roberta_plugin.finetuning.kinds.outputs import RawOutputs, read_outputs, write_outputs
from roberta_plugin.finetuning.preparation import (
    DataSettings,
    PrepareSettings,
    check_same,
    find_faults,
    prepare,
    settings_faults,
)
from roberta_plugin.finetuning.prepared import Prepared
from roberta_plugin.registry import BENCHMARKS, OURS
from tests.golden.finetuning import SUBJECTS
from tests.tiny_benchmarks import examples_of, prepared_of, random_outputs, write_tokenizer
from tests.tiny_validation import validated

OF_TRAINING = {"--set", "--only", "--label-smoothing"}  # options that change no prepared folder
OFTEN = ("one table", "head and tail", "wrong texts", "triplets", "single texts")  # the same for these tests as others
SETS = {
    name: subject
    for name, subject in SUBJECTS.items()
    if not (OF_TRAINING & {*subject.options} or any(each in name for each in OFTEN))
}


def options_of(subject):
    """Those of `roberta prepare` by the names of their fields."""
    return {
        word.removeprefix("--").replace("-", "_"): True if value.startswith("--") else value
        for word, value in pairwise((*subject.options, "--"))
        if word.startswith("--")
    }


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The settings of `roberta prepare` for each set, made once."""
    folder, made = tmp_path_factory.mktemp("benchmarks"), {}
    write_tokenizer(folder / "tokenizer")

    def settings_of(name):
        if name not in made:
            subject, number = SETS[name], len(made)
            raw, options = subject.write(folder / f"raw{number}"), options_for(subject.task, options_of(subject))
            where = {"raw": raw, "tokenizer": folder / "tokenizer", "output_dir": folder / f"prepared{number}"}
            length = (2 if subject.task == "custom" else 8) * subject.length  # the tokenizer has few words
            made[name] = PrepareSettings(task=subject.task, max_length=length, options=options, **where)
            prepare(made[name])
        return made[name]

    return settings_of


@pytest.fixture(params=SETS)
def settings(wanted, request):
    return wanted(request.param)


@pytest.fixture
def prepared(settings):
    return Prepared.open(settings.output_dir)


def score(prepared, split, *members, folder=None):
    options = options_for(prepared.task)
    return benchmark_of(prepared.task).score(prepared, split, members, folder=folder, options=options)


def of_columns(part, right, wrong):
    """Logits by which each answer of a split is right, of kinds of which the columns say it all."""
    logits = np.full((len(part.sequences), 1), wrong, dtype=np.float32)
    first = np.asarray(part.offsets[:-1])
    if "answer" in part.columns:  # pairs of a question
        logits[part.columns["answer"] == 0] = right
    elif "before" in part.columns:  # phrases
        logits[first[part.columns["label"] == 1]] = right
        logits[first[part.columns["label"] == 0]] = 2 * wrong
    else:  # options
        logits[first + part.columns["label"]] = right
    return RawOutputs(logits=logits)


def of_spans(kind, part):
    """Logits by which the answer of each window is certain."""
    columns, sizes = part.columns, part.sequences.sizes
    ends = {
        name: [9 * np.eye(size, dtype="f4")[place] for size, place in zip(sizes, columns[name], strict=True)]
        for name in ("start", "end")
    }
    answerable = (18.0 * columns["has_answer"] - 9).astype("f4")
    return RawOutputs(start_logits=ends["start"], end_logits=ends["end"], answerable_logits=answerable)


def of_tags(kind, part):
    """Logits by which the label of each first token is certain."""
    labels = np.maximum(part.array("token_labels"), 0)
    return RawOutputs(
        token_logits=np.split(9 * np.eye(len(kind.labels), dtype="f4")[labels], part.sequences.starts[1:])
    )


PERFECT = {
    "question_answering": of_spans,
    "tagging": of_tags,
    "classification": lambda kind, part: RawOutputs(logits=9.0 * np.eye(len(kind.labels))[part.columns["label"]]),
    "regression": lambda kind, part: RawOutputs(
        logits=(part.columns["label"][:, None] - kind.settings["mean"]) / kind.settings["deviation"]
    ),
    "multi_label": lambda kind, part: RawOutputs(logits=18.0 * part.columns["labels"] - 9),
    **dict.fromkeys(("pair_ranking", "phrase_ranking", "multiple_choice"), lambda kind, part: of_columns(part, 9, -9)),
}


def test_every_task_has_a_set_and_a_row_of_its_name():
    of_ours = [
        task for family in BENCHMARKS for task in BENCHMARKS[family].tasks if BENCHMARKS.owner(family).package == OURS
    ]
    assert {subject.task for subject in SETS.values()} == {*of_ours}
    assert {benchmark_of(task).kind for task in all_tasks()} - {""} <= KINDS.keys()
    assert all(benchmark_of(task).name == task for task in all_tasks())
    with pytest.raises(ValueError, match=r"no fine-tuning task 'cola'; there are CoLA, "):
        benchmark_of("cola")


def test_a_folder_is_sound_and_fits_the_command_that_made_it(settings, prepared):
    given = {item.name: getattr(settings, item.name) for item in dataclasses.fields(DataSettings)}
    check_same(prepared, DataSettings(**given))
    assert not settings_faults(prepared)
    assert prepared.splits[:2] == ("train", "valid")
    kind = kind_of(prepared)
    for split in prepared.splits:
        part = prepared.split(split)
        assert len(part) and not find_faults(prepared, part)
        assert split not in ("train", "valid") or not kind.lacks(part)


@pytest.mark.parametrize("name", SETS)
def test_damage_of_a_raw_file_is_named_and_a_byte_order_mark_is_no_damage(tmp_path, name):
    subject = SETS[name]
    raw, options = subject.write(tmp_path / "raw"), options_of(subject)
    (path, *_) = benchmark_of(subject.task).files(raw, options_for(subject.task, options))["train"]

    def read():
        return [str(each) for each in examples_of(subject.task, raw, "train", **options)["train"]]

    sound, expected = path.read_bytes(), read()
    assert len(expected) > 5
    path.write_bytes(b"\xef\xbb\xbf" + sound.removeprefix(b"\xef\xbb\xbf"))
    assert read() == expected
    place = sound.index(b"o")
    path.write_bytes(sound[:place] + b"\xff" + sound[place:])
    with pytest.raises(ValueError, match=rf"{path.name}(, line \d+)?:? .*(UTF-8|0xff)"):
        read()
    path.write_bytes(b"")
    with pytest.raises((ValueError, FileNotFoundError), match=f"{path}|split train"):
        prepared_of(subject.task, raw, tmp_path / "set", **options)
    if path.suffix in (".json", ".jsonl", ".txt") and sound.startswith(b"{"):
        path.write_bytes(sound[:-9])
        with pytest.raises(ValueError, match=rf"{path.name}.* is not valid JSON"):
            read()
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "none")):
        prepared_of(subject.task, tmp_path / "none", tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


def test_the_recipe_is_complete(prepared):
    benchmark, kind = benchmark_of(prepared.task), kind_of(prepared)
    recipe = benchmark.recipe(prepared)
    assert {**recipe.train, **COMMON, "task": kind.task, "criterion": kind.task} == recipe.train
    assert recipe.metric["value"] in kind_of(prepared).selectable() and benchmark.starts_from in ("", *all_tasks())
    assert recipe.axes["lr"] and len(recipe.seeds) in (3, 5)
    for schedule in recipe.axes["batch"].values():
        assert 0 <= int(schedule["warmup-updates"]) < int(schedule["max-update"]) == int(schedule["total-num-update"])
    measured = score(prepared, "valid", random_outputs(kind, prepared.split("valid")))
    assert recipe.compared_by in measured
    for numbers in (row for split in benchmark.paper.values() for row in split.values()):
        assert prepared.task == "MRPC" or numbers.keys() <= measured.keys()
        assert all(0 < value < 100 for value in numbers.values())


def test_outputs_are_judged_and_predictions_written(prepared, tmp_path):
    benchmark, kind, valid = benchmark_of(prepared.task), kind_of(prepared), prepared.split("valid")
    drawn = [random_outputs(kind, valid, seed=seed) for seed in (1, 2)]
    of_model = score(prepared, "valid", drawn[0], folder=tmp_path)
    assert all(np.isfinite(value) for value in of_model.values())
    assert score(prepared, "valid", *drawn).keys() == of_model.keys()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} >= {*benchmark.prediction_files("valid")}
    if (constant := kind.constant(drawn[0], prepared.split("train"))) is not None:
        assert score(prepared, "valid", constant).keys() == of_model.keys()
    if kind.name in PERFECT:
        found = score(prepared, "valid", PERFECT[kind.name](kind, valid))
        best = {name: 0 if name in ("mae", "rmse") else 100 for name in of_model if "thresh" not in name}
        assert {name: found[name] for name in best} == pytest.approx(best) and found.keys() == of_model.keys()


def is_labelled(kind, part):
    """Whether the right answers of a split are known, by the columns of the kinds that have some."""
    known = [part.columns[name] for name in ("label", "answer", "labels") if name in part.columns]
    return not kind.lacks(part) and (kind.task != "roberta_sentence_prediction" or bool(known))


def test_a_split_without_answers_has_predictions_and_no_metrics(prepared, tmp_path):
    benchmark, kind = benchmark_of(prepared.task), kind_of(prepared)
    for part in map(prepared.split, prepared.splits[2:]):
        if kind.name in ("question_answering", "multi_label"):  # whose threshold is that of the development set
            return
        found = score(prepared, part.name, random_outputs(kind, part), folder=tmp_path / part.name)
        assert bool(found) == is_labelled(kind, part)
        written = [path for path in (tmp_path / part.name).rglob("*.*")]
        assert {path.name for path in written} >= {*benchmark.prediction_files(part.name)}
        assert all(path.stat().st_size for path in written)


def test_a_validation_logs_the_metrics_of_the_evaluation(prepared):
    kind, part = kind_of(prepared), prepared.split("valid")
    if kind.name in ("question_answering", "summary"):  # at another threshold, and only fast metrics
        return
    outputs = random_outputs(kind, part)
    logged, measured = kind.validated(part, outputs, {}), score(prepared, "valid", outputs)
    measured = {name.replace(" (yes)", ""): value for name, value in measured.items() if name != "threshold"}
    names = measured.keys() - {"roc_auc", "average_precision"}  # which are logged where they choose
    assert {name: measured[name] for name in names} == pytest.approx({name: logged[name] for name in names}, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "lrs", "batch", "epochs", "weight_decay", "seeds", "selection"),
    [
        ("CoLA", ["1e-5", "2e-5", "3e-5"], 16, 10, "0.1", 5, "mcc"),
        ("STS-B", ["1e-5", "2e-5", "3e-5"], 32, 10, "0.1", 5, "pearson_spearman"),
        ("QQP", ["1e-5", "2e-5", "3e-5"], 32, 10, "0.1", 5, "acc_and_f1"),
        ("squad1", ["1.5e-5"], 48, 2, "0.01", 5, "f1"),
        ("squad2", ["1.5e-5"], 48, 2, "0.01", 5, "tuned_f1"),
        ("race", ["1e-5"], 16, 4, "0.1", 5, "accuracy"),
        ("ReCoRD", ["1e-5"], 16, 4, "0.1", 5, "accuracy"),
        ("conll2003", ["2e-5", "3e-5", "5e-5"], 32, 4, "0.1", 5, "f1"),
        ("summaries", ["1e-5", "2e-5", "3e-5"], 36, 10, "0.1", 3, "rouge"),
        ("cnn_dailymail", ["2e-5"], 36, 6, "0.1", 3, "rouge"),
    ],
)
def test_grids_are_those_of_the_papers(wanted, name, lrs, batch, epochs, weight_decay, seeds, selection):
    prepared = Prepared.open(wanted(name).output_dir)
    recipe = benchmark_of(prepared.task).recipe(prepared)
    updates = epochs * -(-len(prepared.split("train")) // batch)
    schedule = {"batch-size": batch, "total-num-update": updates, "max-update": updates}
    schedule["warmup-updates"] = round(0.06 * updates)
    assert recipe.axes["batch"][str(batch)] == {option: str(number) for option, number in schedule.items()}
    assert (list(recipe.axes["lr"]), recipe.train["weight-decay"]) == (lrs, weight_decay)
    assert (len(recipe.seeds), recipe.metric["value"]) == (seeds, selection)


ONE_OF_EACH_KIND = (
    *("SST-2", "STS-B", "QNLI-ranking", "WNLI", "squad2", "race", "multiple_choice"),
    *("tagging, whole documents, all pieces", "summaries"),
    *("own classification in windows", "own multi-label", "own embedding, pairs", "own embedding, scores"),
)
SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(params=ONE_OF_EACH_KIND)
def of_kind(wanted, request):
    return Prepared.open(wanted(request.param).output_dir)


def opened(prepared, *, arch="fast_roberta_tiny", **options):
    """Task, model without dropout, and criterion, as fairseq-train makes them."""
    roberta_plugin.register()  # another test may not have imported fairseq before
    kind, positions = kind_of(prepared), prepared.settings["max_length"]
    config = TASK_DATACLASS_REGISTRY[kind.task](data=str(prepared.folder), seed=3, max_positions=positions, **options)
    task = TASK_REGISTRY[kind.task].setup_task(config)
    torch.manual_seed(0)
    model = task.build_model(Namespace(arch=arch, **SIZES, dropout=0.0, attention_dropout=0.0))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return task, model, CRITERION_REGISTRY[kind.task].build_criterion(Namespace(), task)


def test_every_fairseq_task_is_registered_with_a_criterion_of_its_name(of_kind):
    task, _, criterion = opened(of_kind)
    assert all(type(each).__module__.startswith("roberta_plugin.") for each in (task, criterion))
    assert task.name == criterion.name == kind_of(of_kind).task


def test_a_batch_has_one_loss_padded_or_packed_and_its_gradient_reaches_the_whole_head(of_kind):
    kind, found = kind_of(of_kind), []
    for pack in (False, True)[: 1 + kind.can_pack]:
        task, model, criterion = opened(of_kind, pack_sequences=pack, pad_to_multiple=8)
        task.load_dataset("train")
        batch = task.dataset("train").__getitems__([(1, example) for example in range(6)])
        loss, size, log = criterion(model.train(), batch)
        loss.backward()
        assert size == log["sample_size"] > 0 and loss > 0
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        head = [name for name in gradients if "head" in name and (kind.head == "masked_lm" or "lm_head" not in name)]
        assert all(gradients[name] is not None for name in head)
        # Of a softmax over positions or options, the gradient of a bias is 0 but for the rounding of a processor.
        assert all(
            gradients[name].abs().sum() > 0 for name in head if not name.endswith(("out_proj.bias", "span.bias"))
        )
        assert bool(head) == (kind.head != "")
        found.append((loss, [gradients[name] for name in ("encoder.sentence_encoder.embed_tokens.weight", *head)]))
    torch.testing.assert_close(found[0], found[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["SST-2", "STS-B", "QNLI-ranking", "WNLI", "race"])
def test_the_model_of_fairseq_has_the_head_and_the_loss_of_ours(wanted, name):
    prepared, losses = Prepared.open(wanted(name).output_dir), []
    for arch in ("roberta_base", "fast_roberta_tiny"):
        task, model, criterion = opened(prepared, arch=arch)
        task.load_dataset("train")
        batch = task.dataset("train").__getitems__([(1, example) for example in range(6)])
        heads = {key: head.out_proj.out_features for key, head in model.classification_heads.items()}
        size = task.training.head_sizes["num_classes"]
        assert heads == ({} if name == "WNLI" else {"sentence_classification_head": size})
        assert task.outputs(model, batch).shape == (len(batch["net_input"]["src_lengths"]), size)
        losses.append(criterion(model, batch)[0].item())
    assert all(loss > 0 for loss in losses)


def test_outputs_are_each_example_s_own_survive_on_disk_and_are_judged_in_a_validation_of_any_batches(
    of_kind, tmp_path
):
    task, model, criterion = opened(of_kind)
    kind, part = kind_of(of_kind), of_kind.split("valid")
    model.eval()
    outputs, alone = (run_model(model, task, part, max_tokens=most) for most in (500, 1))
    write_outputs(tmp_path, outputs, part)
    again = read_outputs(tmp_path, part)
    for name in kind.outputs:
        one, other, read = (np.concatenate([*getattr(each, name)], axis=None) for each in (outputs, alone, again))
        np.testing.assert_allclose(one, other, atol=1e-4)
        assert np.array_equal(one, read) and one.std() > 0
    assert read_outputs(tmp_path, of_kind.split("train")) is None
    task.load_dataset("valid")
    dataset, measured = task.dataset("valid"), score(of_kind, "valid", outputs)
    of_label = [name for name in kind.label_metrics() if name in measured]
    criterion.chosen = next(iter(of_label), "loss")  # the F1 of a label is logged if it chooses
    for epoch, size in ((1, 3), (2, 64)):
        batches = dataset.batches(epoch, max_sentences=size)
        logged = validated(criterion, model, map(dataset.__getitems__, batches))
        common = measured.keys() & logged.keys()
        assert criterion.chosen in logged and common, "one score has one name"
        # Batches of other sizes round otherwise, by processor; outputs differ by 1e-4 (above), metrics by 100 times that.
        expected = pytest.approx({name: measured[name] for name in common}, rel=1e-5, abs=1e-3)
        assert {name: logged[name] for name in common} == expected


QUESTION = {"id": "1", "context": "x", "question": "y", "options": ["a", "b"]}
OF_SQUAD = {"context": "xx good", "qas": [{"id": "q", "question": "What?"}]}
WITHOUT_ANSWERS = {  # the name of a test file, what it holds, and what is said of it
    "multiple_choice": ("test.jsonl", QUESTION, "has 1 of 1 questions without an answer"),
    "squad2": ("test-v2.0.json", {"version": "v2.0", "data": [{"paragraphs": [OF_SQUAD]}]}, "has questions without"),
    "summaries": ("test.jsonl", {"text": "One. Two."}, "has documents without a summary"),
    "conll2003": ("eng.testb", "good", "has no tags"),
}


@pytest.mark.parametrize("name", WITHOUT_ANSWERS)
def test_what_has_no_answers_or_was_changed_is_not_trained_on(tmp_path, name):
    subject, (file, content, message) = SETS[name], WITHOUT_ANSWERS[name]
    raw = subject.write(tmp_path / "raw")
    (raw / file).write_text(content if isinstance(content, str) else json.dumps(content) + "\n")
    task = opened(prepared_of(subject.task, raw, tmp_path / "set", max_length=96, **options_of(subject)))[0]
    task.load_dataset("valid")
    with pytest.raises(ValueError, match=rf"the split 'test' {message}.*, so there is no loss: `roberta evaluate`"):
        task.load_dataset("test")
    changed = min(task.prepared.folder.glob("train.*.npy"))
    content = bytearray(changed.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{changed.name} was changed since it was made"):
        task.load_dataset("train")


def test_packed_windows_of_passages_are_refused(wanted):
    with pytest.raises(ValueError, match="--pack-sequences does not go with --task squad2"):
        opened(Prepared.open(wanted("squad2").output_dir), pack_sequences=True)
