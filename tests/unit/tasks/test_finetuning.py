"""What all fine-tuning tasks refuse before any work is done: data, options, and criterions of other tasks."""

from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.options import get_training_parser, parse_args_and_arch
from fairseq.tasks import TASK_REGISTRY
from omegaconf import MISSING

from roberta_plugin.cli import main
from roberta_plugin.criterions.masked_lm import RobertaMaskedLMCriterion
from roberta_plugin.extensions.spans.training_options import Squad2Config
from roberta_plugin.extensions.summaries.training_options import SummarizationConfig
from roberta_plugin.extensions.tagging.training_options import RobertaTaggingConfig
from roberta_plugin.launch import arguments as train_arguments
from roberta_plugin.tasks import finetuning as tasks
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMConfig, RobertaMaskedLMTask
from tests.tiny_benchmarks import write_prepared, write_tokenizer
from tests.tiny_corpus import write_data_bin
from tests.tiny_squad import write_prepared as write_squad
from tests.tiny_summaries import write_prepared as write_summaries
from tests.tiny_tagging import write_prepared as write_tagging

SIZES = {"encoder_layers": 1, "encoder_embed_dim": 8, "encoder_ffn_embed_dim": 8, "encoder_attention_heads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_prepared(tmp_path_factory.mktemp("set") / "set", task="race").folder


def setup(folder, **options):
    return TASK_REGISTRY["race"].setup_task(tasks.FineTuningConfig(data=str(folder), seed=1, **options))


def test_the_vocabulary_and_the_splits_are_those_of_the_folder(folder):
    task = setup(folder, max_positions=64)
    task.load_dataset("valid")
    assert len(task.dataset("valid")) == 40
    assert len(task.source_dictionary) == len(task.vocabulary) == len(task.prepared.vocabulary)
    assert task.source_dictionary.index("<mask>") == task.vocabulary.mask_id
    assert task.max_positions() == 64


def test_folders_for_another_task_or_none_and_a_model_that_is_too_short_are_refused(folder, tmp_path):
    other = write_prepared(tmp_path / "set", task="CoLA").folder
    for data, options, error, message in (
        (folder, {"max_positions": 20}, ValueError, "of up to 30 tokens, and --max-positions is 20: prepare it again"),
        (other, {}, ValueError, "prepared for CoLA: give --task roberta_sentence_prediction, not race"),
        (tmp_path, {}, FileNotFoundError, "roberta prepare TASK"),
        (MISSING, {}, ValueError, "data folder is missing"),
    ):
        with pytest.raises(error, match=message):
            setup(data, **options)
    with pytest.raises(ValueError, match="no split 'dev'; it has train, valid"):
        setup(folder).load_dataset("dev")


def test_packed_rows_need_a_model_that_can(folder):
    from fairseq.models.roberta.model import base_architecture

    args = Namespace(arch="roberta_base", encoder_layers=1, encoder_embed_dim=8, encoder_attention_heads=2)
    args.encoder_ffn_embed_dim, args._name, args.max_positions = 8, "roberta", 64
    base_architecture(args)
    setup(folder).build_model(args)
    with pytest.raises(ValueError, match="--pack-sequences needs a model that keeps the sequences of a row apart"):
        setup(folder, pack_sequences=True).build_model(args)


def test_checkpoints_are_not_chosen_by_the_f1_of_a_label_that_the_split_lacks(tmp_path):
    """Neither where a training is planned, nor in fairseq-train, whose validations would log no such metric."""
    for name, labels in (("train", "abc"), ("valid", "ab")):
        rows = [f"text {number},{labels[number % len(labels)]}" for number in range(12)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["prepare", "custom", "--kind", "classification", "--output-dir", tmp_path / "set"]
    words += ["--tokenizer", write_tokenizer(tmp_path / "tokenizer")]
    words += ["--train", tmp_path / "train.csv", "--valid", tmp_path / "valid.csv"]
    assert main([str(word) for word in words]) == 0
    options = "--task roberta_sentence_prediction --criterion roberta_sentence_prediction --arch fast_roberta_tiny "
    options += "--optimizer roberta_adamw --lr 0.001 --batch-size 4 --best-checkpoint-metric"
    said = r"--best-checkpoint-metric f1_c: no example of the split 'valid' has the label 'c', so it cannot be measured"
    for metric, more, refusal in (
        ("f1_c", (), pytest.raises(ValueError, match=said)),
        ("f1_b", (), nullcontext()),
        ("f1_c", ("--disable-validation",), nullcontext()),
        ("f1_c", ("--valid-subset", "train"), nullcontext()),
    ):
        parsed = train_arguments.parse([str(tmp_path / "set"), *options.split(), metric, *more])
        with refusal:
            train_arguments.check_options(parsed)
        with refusal:
            TASK_REGISTRY["roberta_sentence_prediction"].check_start(train_arguments.to_config(parsed))


@pytest.mark.parametrize(
    ("write", "task", "config", "head", "kind"),
    [
        (write_squad, TASK_REGISTRY["squad2"], Squad2Config, "span_head.span", "span"),
        (write_tagging, TASK_REGISTRY["roberta_tagging"], RobertaTaggingConfig, "token_head.out_proj", "token"),
        (
            write_summaries,
            TASK_REGISTRY["roberta_summarization"],
            SummarizationConfig,
            "summary_head.out_proj",
            "sentence",
        ),
    ],
    ids=["squad2", "tagging", "summaries"],
)
def test_a_head_of_ours_is_above_all_layers_and_fairseqs_own_model_has_none(tmp_path, write, task, config, head, kind):
    made = task.setup_task(config(data=str(write(tmp_path).folder), seed=3))
    model = made.build_model(Namespace(arch="fast_roberta_tiny", **SIZES))
    above = {name: parameter.optim_overrides["layers_above"] for name, parameter in model.named_parameters()}
    assert above[f"heads.{head}.weight"] == 0
    assert above["encoder.sentence_encoder.embed_tokens.weight"] == 2
    with pytest.raises(ValueError, match=f"RobertaModel has no {kind} heads: use --arch fast_roberta_base"):
        made.build_model(Namespace(arch="roberta_base", **SIZES))


CRITERIONS = {
    "roberta_masked_lm": RobertaMaskedLMCriterion,
    "roberta_sentence_prediction": CRITERION_REGISTRY["roberta_sentence_prediction"],
    "race": CRITERION_REGISTRY["race"],
    "squad2": CRITERION_REGISTRY["squad2"],
    "roberta_summarization": CRITERION_REGISTRY["roberta_summarization"],
    "masked_lm": None,
    "cross_entropy": None,
}
TASKS = ("roberta_masked_lm", "roberta_sentence_prediction", "race", "squad2")


@pytest.fixture(scope="module")
def all_tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    data_bin = write_data_bin(folder / "text", num_documents=3, valid_documents=2)
    kinds = {
        "roberta_sentence_prediction": (TASK_REGISTRY["roberta_sentence_prediction"], tasks.FineTuningConfig, "RTE"),
        "race": (TASK_REGISTRY["race"], tasks.FineTuningConfig, "race"),
        "squad2": (TASK_REGISTRY["squad2"], Squad2Config, "squad2"),
    }
    found = {"roberta_masked_lm": RobertaMaskedLMTask.setup_task(RobertaMaskedLMConfig(data=str(data_bin), seed=1))}
    for name, (task, config, prepared_for) in kinds.items():
        data = write_prepared(folder / name, task=prepared_for).folder
        found[name] = task.setup_task(config(data=str(data), seed=1))
    return found


@pytest.mark.parametrize("criterion", CRITERIONS)
@pytest.mark.parametrize("task", TASKS)
def test_a_task_takes_its_own_criterion_and_refuses_others_by_name(all_tasks, task, criterion):
    options = {"max_answer_length": 30} if criterion == "squad2" else {}
    cfg = SimpleNamespace(criterion=criterion, **options)
    if criterion == task:
        assert isinstance(all_tasks[task].build_criterion(cfg), CRITERIONS[criterion])
    if criterion == task or (task, criterion) == ("roberta_masked_lm", "masked_lm"):
        return
    said = rf"--task .*--criterion .*{criterion}|--criterion {criterion} .*--task {task}"
    with pytest.raises(ValueError, match=said):
        all_tasks[task].build_criterion(cfg)


@pytest.mark.parametrize("criterion", [name for name, of_ours in CRITERIONS.items() if hasattr(of_ours, "config")])
def test_a_fine_tuning_criterion_refuses_fairseq_s_own_tasks(criterion):
    task = SimpleNamespace(target_dictionary=None, cfg=SimpleNamespace(_name="sentence_prediction"))
    said = f"--criterion {criterion} goes with --task {criterion} .* sentence_prediction"
    with pytest.raises(ValueError, match=said):
        CRITERIONS[criterion].build_criterion(SimpleNamespace(max_answer_length=30), task)


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        ("race", ("accuracy_middle",), ""),
        ("race", ("loss", 0), ""),
        ("squad2", ("span_loss", 3), ""),
        ("squad2", ("accuracy",), "--best-checkpoint-metric accuracy is not logged .* loss, span_loss, .* tuned_f1,"),
        ("race", ("micro_f1",), "--best-checkpoint-metric micro_f1 is not logged .* choose by loss, accuracy, "),
        ("squad2", ("f1", 0), "f1 is measured on a whole split, but --max-valid-steps 0 .* by the loss"),
        ("squad2", ("f1", 0, "--disable-validation"), ""),
    ],
)
def test_checkpoints_are_chosen_by_what_every_validation_logs(all_tasks, task, options, sentence):
    args = ["data", "--task", task, "--criterion", task, "--arch", "fast_roberta_tiny", "--optimizer", "roberta_adamw"]
    for option, value in zip(("--best-checkpoint-metric", "--max-valid-steps"), options, strict=False):
        args += [option, str(value)]
    args += options[2:]
    cfg = convert_namespace_to_omegaconf(parse_args_and_arch(get_training_parser(), args)).criterion
    with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
        all_tasks[task].build_criterion(cfg)
