"""What every benchmark keeps: official files are prepared, a recipe is complete, outputs are judged and written.

The files are those of the golden set; tables of your own have tests of their own (`custom/`).
"""

import dataclasses

import numpy as np
import pytest

import roberta_plugin
from roberta_plugin.finetuning.benchmarks import TASKS, benchmark_of, kind_of, options_for
from roberta_plugin.finetuning.benchmarks.base import COMMON
from roberta_plugin.finetuning.inspection import find_faults, settings_faults
from roberta_plugin.finetuning.kinds import KINDS, OWN, kind_class
from roberta_plugin.finetuning.kinds.outputs import RawOutputs
from roberta_plugin.finetuning.preparation import DataSettings, PrepareSettings, check_same, prepare
from roberta_plugin.finetuning.prepared import Prepared
from tests.golden.finetuning import SUBJECTS
from tests.tiny_benchmarks import random_outputs, write_tokenizer

SETS = {name: subject for name, subject in SUBJECTS.items() if subject.task != "custom"}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The settings of `roberta prepare` for each set, made once."""
    folder, made = tmp_path_factory.mktemp("benchmarks"), {}
    write_tokenizer(folder / "tokenizer")

    def settings_of(name):
        if name not in made:
            subject, number = SETS[name], len(made)
            words = dict(zip(subject.options[::2], subject.options[1::2], strict=True))
            options = {word.removeprefix("--").replace("-", "_"): value for word, value in words.items()}
            made[name] = PrepareSettings(
                task=subject.task,
                raw=subject.write(folder / f"raw{number}"),
                tokenizer=folder / "tokenizer",
                output_dir=folder / f"prepared{number}",
                max_length=8 * subject.length,  # the tokenizer has few words
                options=options_for(subject.task, options),
            )
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
    return RawOutputs(
        start_logits=ends["start"],
        end_logits=ends["end"],
        answerable_logits=(18.0 * columns["has_answer"] - 9).astype("f4"),
    )


def of_tags(kind, part):
    """Logits by which the label of each first token is certain."""
    labels = np.maximum(part.array("token_labels"), 0)
    return RawOutputs(
        token_logits=np.split(9 * np.eye(len(kind.labels), dtype="f4")[labels], part.sequences.starts[1:])
    )


PERFECT = {
    "question_answering": of_spans,
    "tagging": of_tags,
    "classification": lambda kind, part: RawOutputs(
        logits=9 * np.eye(len(kind.labels), dtype="f4")[part.columns["label"]]
    ),
    "regression": lambda kind, part: RawOutputs(logits=part.columns["label"][:, None] / 5),
    **dict.fromkeys(("pair_ranking", "phrase_ranking", "multiple_choice"), lambda kind, part: of_columns(part, 9, -9)),
}


def test_every_task_has_a_set_and_a_row_of_its_name():
    assert {subject.task for subject in SETS.values()} == {*TASKS} - {"custom"}
    assert all(benchmark_of(task).name == task for task in TASKS)
    with pytest.raises(ValueError, match=r"no fine-tuning task 'cola'; there are CoLA, "):
        benchmark_of("cola")


def test_a_folder_is_sound_and_fits_the_command_that_made_it(settings, prepared):
    check_same(
        prepared, DataSettings(**{item.name: getattr(settings, item.name) for item in dataclasses.fields(DataSettings)})
    )
    assert not settings_faults(prepared)
    assert prepared.splits[:2] == ("train", "valid")
    kind = kind_of(prepared)
    for split in prepared.splits:
        part = prepared.split(split)
        assert len(part) and not find_faults(prepared, part)
        assert split not in ("train", "valid") or not kind.lacks(part)


def test_the_recipe_is_complete(prepared):
    benchmark, kind = benchmark_of(prepared.task), kind_of(prepared)
    recipe = benchmark.recipe(prepared)
    assert {**recipe.train, **COMMON, "task": kind.task, "criterion": kind.task} == recipe.train
    assert recipe.metric["value"] in kind_of(prepared).selectable() and recipe.starts_from in ("", *TASKS)
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
        assert found == {name: pytest.approx(100) for name in of_model if "thresh" not in name} | {
            name: value for name, value in found.items() if "thresh" in name
        }


def is_labelled(kind, part):
    """Whether the right answers of a split are known, by the columns of the kinds that have some."""
    known = [part.columns[name] for name in ("label", "answer", "labels") if name in part.columns]
    return not kind.lacks(part) and (kind.task != "roberta_sentence_prediction" or bool(known))


def test_a_split_without_answers_has_predictions_and_no_metrics(prepared, tmp_path):
    benchmark, kind = benchmark_of(prepared.task), kind_of(prepared)
    others = [prepared.split(split) for split in prepared.splits[2:] if kind.name != "question_answering"]
    for part in others:
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
    assert measured == {metric: pytest.approx(logged[metric], abs=1e-9) for metric in measured}


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
    assert (recipe.axes["lr"], recipe.train["weight-decay"]) == (lrs, weight_decay)
    assert (len(recipe.seeds), recipe.metric["value"]) == (seeds, selection)


def test_every_fairseq_task_is_registered_with_a_criterion_of_its_name():
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    roberta_plugin.register()  # another test may not have imported fairseq before
    for name in {kind_class(kind).task for kind in OWN}:
        assert TASK_REGISTRY[name].__module__.startswith("roberta_plugin.")
        assert CRITERION_REGISTRY[name].__module__.startswith("roberta_plugin.")
    assert {benchmark_of(task).kind for task in TASKS} - {""} <= KINDS.keys()
