"""The real `fairseq-train`, `fairseq-hydra-train` and `fairseq-validate` with our task, criterion and models."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.tiny_corpus import command, kill_at_update, logged, run, train_command, write_data_bin

pytestmark = pytest.mark.integration

UPDATES = 48
RESUMABLE = (
    *("--max-update", str(UPDATES), "--save-interval-updates", "4", "--num-workers", "2", "--no-epoch-checkpoints"),
)
RESUMABLE += ("--total-num-update", str(UPDATES), "--disable-validation")
PRECISIONS = {"fp32": (), "bf16": ("--bf16", "--optimizer", "roberta_adamw")}


def final_parameters(save_dir: Path) -> dict[str, torch.Tensor]:
    """The weights at the end, and the fp32 masters behind them if there are any."""
    state = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == UPDATES
    masters = state["last_optimizer_state"].get("fp32_params", [])
    return {**state["model"], **{f"master {number}": master for number, master in enumerate(masters)}}


@pytest.fixture(scope="module")
def uninterrupted_runs(tiny_data_bin, tmp_path_factory):
    save_dirs = {}
    for precision, options in PRECISIONS.items():
        save_dirs[precision] = tmp_path_factory.mktemp(precision) / "checkpoints"
        done = run(train_command(tiny_data_bin, save_dirs[precision], *RESUMABLE, *options))
        assert done.returncode == 0, done.stderr[-3000:]
    return save_dirs


@pytest.fixture(scope="module")
def uninterrupted(uninterrupted_runs):
    return uninterrupted_runs["fp32"]


def test_the_loss_falls(uninterrupted):
    losses = [float(record["loss"]) for record in logged(uninterrupted, "train_inner")]
    assert len(losses) == UPDATES
    assert sum(losses[-10:]) < sum(losses[:10]) - 5


def with_options_of_earlier_versions(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["cfg"]["task"] |= {"background_checkpoints": True, "bert_pairs": 10}
    state["cfg"]["model"]["attention_backend"] = "flash"
    torch.save(state, path)


@pytest.mark.parametrize(("kill_at", "precision"), [(9, "fp32"), (30, "bf16")])
def test_a_killed_run_ends_in_the_same_bits(uninterrupted_runs, tiny_data_bin, tmp_path, kill_at, precision):
    save_dir = tmp_path / "checkpoints"
    arguments = train_command(tiny_data_bin, save_dir, *RESUMABLE, *PRECISIONS[precision])
    killed_at = kill_at_update(arguments, save_dir, kill_at)
    assert kill_at <= killed_at < UPDATES

    saved = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)
    iterator = saved["extra_state"]["train_iterator"]
    assert iterator["iterations_in_epoch"] > 0, "the checkpoint lies on an epoch's edge: the test shows nothing"
    if precision == "bf16":
        with_options_of_earlier_versions(save_dir / "checkpoint_last.pt")

    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    resumed = [int(record["num_updates"]) for record in logged(save_dir, "train_inner")]
    assert len(resumed) > len(set(resumed)), "the second run repeated no update, so it did not resume from a checkpoint"

    expected, found = final_parameters(uninterrupted_runs[precision]), final_parameters(save_dir)
    assert expected.keys() == found.keys()
    assert ("master 0" in found) == (precision == "bf16")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_memory_efficient_bf16_trains_as_bf16_does(uninterrupted_runs, tiny_data_bin, tmp_path):
    """From the middle of the ordinary run: its masters, its moments, its updates, to the last bit."""
    save_dir = tmp_path / "checkpoints"
    options = list(PRECISIONS["bf16"])
    options[options.index("--bf16")] = "--memory-efficient-bf16"
    middle = uninterrupted_runs["bf16"] / f"checkpoint_1_{UPDATES // 3 // 4 * 4}.pt"
    done = run(train_command(tiny_data_bin, save_dir, *RESUMABLE, *options, "--restore-file", str(middle)))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "FP16Optimizer: MemoryEfficientFP16Optimizer takes over its state" in done.stdout + done.stderr
    expected, found = final_parameters(uninterrupted_runs["bf16"]), final_parameters(save_dir)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_validation_reports_accuracy_and_fairseq_validate_agrees(tiny_data_bin, tmp_path):
    save_dir = tmp_path / "checkpoints"
    options = ("--max-update", "30", "--total-num-update", "30", "--batch-size-valid", "4", "--no-epoch-checkpoints")
    arguments = train_command(tiny_data_bin, save_dir, *options, "--tensorboard-logdir", str(tmp_path / "tensorboard"))
    done = run(arguments, fork_of=None)
    assert done.returncode == 0, done.stderr[-3000:]
    during = logged(save_dir, "valid")[-1]
    assert 0 < float(during["valid_accuracy"]) < 100
    assert float(during["valid_neighbors_loss"]) < float(during["valid_bigram_loss"])
    assert float(during["valid_bigram_loss"]) < float(during["valid_unigram_loss"]) < float(during["valid_loss"])
    log = done.stdout + done.stderr
    assert log.count("baselines on valid: unigram baseline") == 1
    assert (
        log.count("On valid, the model has a loss of") == 1
        and "token frequencies at most. A small fast_roberta with new weights learns more by --enc" in log
    )
    (events,) = (tmp_path / "tensorboard" / "valid").glob("events*")
    assert b"unigram_loss" in events.read_bytes() and b"neighbors_loss" in events.read_bytes()
    assert "Please install" not in done.stdout + done.stderr

    validate = [*command("fairseq-validate"), str(tiny_data_bin), "--user-dir", str(REPOSITORY / "roberta_plugin")]
    validate += ["--task", "roberta_masked_lm", "--path", str(save_dir / "checkpoint_last.pt"), "--cpu", "--seed", "3"]
    validate += ["--batch-size", "4", "--valid-subset", "valid", "--log-format", "simple"]
    done = run(validate)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DEBUG" not in done.stdout + done.stderr
    loss = float(re.findall(r"\| loss ([0-9.]+)", done.stdout + done.stderr)[-1])
    assert loss == pytest.approx(float(during["valid_loss"]), abs=2e-3)


def test_packed_rows_train_as_padded_batches_do(tiny_data_bin, tmp_path):
    """The same order cannot be had, so the loss after the same number of tokens is compared, and its share of padding."""
    ends = {}
    for name, options in {"padded": (), "packed": ("--pack-sequences",)}.items():
        save_dir = tmp_path / name
        limits = (
            *("--max-tokens", "256", "--max-update", "40", "--total-num-update", "40"),
            *("--sample-break-mode", "complete_doc"),
        )
        done = run(train_command(tiny_data_bin, save_dir, *limits, *options, "--disable-validation", "--no-save"))
        assert done.returncode == 0, done.stderr[-3000:]
        records = logged(save_dir, "train_inner")
        ends[name] = [sum(float(record[key]) for record in records[-10:]) / 10 for key in ("loss", "padding")]
    assert ends["packed"][0] == pytest.approx(ends["padded"][0], abs=0.25)
    assert ends["packed"][1] == 0 < ends["padded"][1]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--arch", "roberta_base", ("model: RobertaModel", "task: RobertaMaskedLMTask")),
        ("--criterion", "masked_lm", ("model: FastRobertaModel", "criterion: MaskedLmLoss")),
        ("--task", "masked_lm", ("model: FastRobertaModel", "task: MaskedLMTask")),  # src_id in its batches
        ("--task", "multilingual_masked_lm", ("model: FastRobertaModel",)),  # folders of languages, no max_positions
    ],
)
def test_fairseqs_own_model_criterion_and_tasks_train_with_ours(tiny_data_bin, tmp_path, option, value, said):
    data = tiny_data_bin
    if value == "multilingual_masked_lm":
        data = tmp_path / "languages"
        data.mkdir()
        (data / "xx").symlink_to(tiny_data_bin)
        shutil.copy(tiny_data_bin / "dict.txt", data)
    save_dir = tmp_path / "checkpoints"
    arguments = train_command(data, save_dir, "--max-update", "6", "--total-num-update", "6", "--no-save")
    arguments[arguments.index(option) + 1] = value
    done = run(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(each in done.stdout + done.stderr for each in said)
    assert (len(logged(save_dir, "train_inner")), len(logged(save_dir, "valid"))) == (6, 1)


def test_shards_take_turns_by_epoch(tiny_data_bin, tmp_path):
    other = write_data_bin(tmp_path / "other", num_documents=30, seed=7)
    save_dir = tmp_path / "checkpoints"
    options = ("--max-epoch", "3", "--total-num-update", "100", "--disable-validation", "--num-workers", "1")
    done = run(train_command(f"{tiny_data_bin}:{other}", save_dir, *options))
    assert done.returncode == 0, done.stderr[-3000:]
    updates = {int(record["epoch"]): 0 for record in logged(save_dir, "train_inner")}
    for record in logged(save_dir, "train_inner"):
        updates[int(record["epoch"])] += 1
    assert set(updates) == {1, 2, 3}
    assert updates[1] == updates[3] > updates[2] > 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--criterion", "cross_entropy"), ("--criterion roberta_masked_lm",)),  # the default, if none is given
        (("--fp16",), ("--fp16", "--cpu", "--bf16", "--fp16-no-flatten-grads")),
        (("--lr", "0.25"), ("--lr is missing", "0.25")),  # fairseq's default
        (("--total-num-update",), ("--total-num-update is missing: --lr-scheduler polynomial_decay needs it.",)),
        ("text.txt", ("text.txt is a file", "roberta binarize --train")),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(tiny_data_bin, tmp_path, options, named):
    """What else is refused so: unit/fairseq_workarounds/test_command_line.py, unit/tasks."""
    (tmp_path / "text.txt").write_text("a text\n")
    data = tiny_data_bin if isinstance(options, tuple) else tmp_path / options
    options = options if isinstance(options, tuple) else ()
    end = ("--total-num-update", "2", *options) if options != ("--total-num-update",) else ()
    done = run(train_command(data, tmp_path / "checkpoints", "--max-update", "2", *end))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(name in done.stderr for name in named)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--bf16",), "--amp or none) was FairseqAdam and is FP16Optimizer now. Give what it was started with"),
        (("--tokens-per-sample", "128"), "has 64 positions, and this model has 128: give --max-positions 64"),
        (("--mask-whole-words",), "No tokenizer in"),  # found when the data are loaded
    ],
)
def test_a_mistake_that_is_found_later_is_one_line_too(uninterrupted, tiny_data_bin, tmp_path, options, named):
    shutil.copytree(uninterrupted, tmp_path / "checkpoints")
    arguments = train_command(tiny_data_bin, tmp_path / "checkpoints", *RESUMABLE, "--max-update", "70", *options)
    done = run(arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert named in done.stderr


def test_a_part_whose_limit_is_passed_leaves_the_unfinished_update_of_a_later_part(
    uninterrupted, tiny_data_bin, tmp_path
):
    """As the second start of a recipe in parts, which begins with its first; the later part was stopped by Ctrl-C."""
    last = tmp_path / "checkpoints" / "checkpoint_last.pt"
    last.parent.mkdir()
    state = torch.load(uninterrupted / last.name, weights_only=True)
    state["extra_state"]["unfinished_update"] = {"epoch": 1, "end_of_epoch": False}
    torch.save(state, last)
    before = last.read_bytes()
    limits = (
        *("--max-update", "20", "--total-num-update", "20", "--save-interval-updates", "4", "--no-epoch-checkpoints"),
    )
    first_part = ("--tokens-per-sample", "32", "--max-positions", "64")
    done = run(train_command(tiny_data_bin, last.parent, *limits, *first_part))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "This training is finished: the checkpoint has 48 updates, and --max-update is 20" in done.stdout
    assert not logged(last.parent, "valid")
    assert [path.name for path in last.parent.glob("*.pt")] == [last.name] and last.read_bytes() == before


SUBCLASS = """
from fairseq.tasks import register_task
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMConfig, RobertaMaskedLMTask

@register_task("own_task", dataclass=RobertaMaskedLMConfig)
class OwnTask(RobertaMaskedLMTask):
    @classmethod
    def check_options(cls, cfg):
        super().check_options(cfg)
        int("a fault of its author")
"""


@pytest.mark.parametrize(("option", "is_short"), [("--mask-prob=7", True), ("--mask-prob=0.2", False)])
def test_a_fault_in_a_users_own_task_has_its_traceback_and_a_refusal_of_ours_one_line(
    tiny_data_bin, tmp_path, option, is_short
):
    (tmp_path / "own_plugin").mkdir()
    (tmp_path / "own_plugin" / "__init__.py").write_text(SUBCLASS)
    arguments = train_command(tiny_data_bin, tmp_path / "checkpoints", "--max-update", "2", "--total-num-update", "2")
    arguments[arguments.index("--user-dir") + 1] = str(tmp_path / "own_plugin")
    arguments[arguments.index("--task") + 1] = "own_task"
    done = run([*arguments, option])
    assert done.returncode == (2 if is_short else 1)
    assert (len(done.stderr.splitlines()) == 1) == is_short, done.stderr
    assert ("own_plugin" in done.stderr) != is_short
    assert done.stderr.splitlines()[-1].startswith("ValueError: ")
