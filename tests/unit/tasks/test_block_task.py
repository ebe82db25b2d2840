"""What all tasks share, and what they make of fairseq's own options."""

import gc
import multiprocessing
from types import SimpleNamespace

import pytest
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from roberta_plugin.tasks.block_task import BlockTask
from roberta_plugin.tasks.block_task_checks import (
    IGNORED,
    ignored_options,
    peak_update,
    unmade_decisions,
    unreached_rates,
)
from roberta_plugin.tasks.growth import Step, next_step, parse, value_at
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig, growth_of
from tests.tiny_corpus import write_data_bin
from tests.unit.tasks.test_masked_lm import load, make_task


@pytest.mark.parametrize("buffer_size", [0, 10])
def test_workers_of_an_earlier_turn_are_gone_when_the_next_begins(tmp_path, buffer_size):
    """As fairseq's trainer goes through `A:B`. Left to the garbage collector, each worker costs 5 s."""
    data = [write_data_bin(tmp_path / name, num_documents=4, seed=seed) for seed, name in enumerate("ab")]
    task = make_task(f"{data[0]}:{data[1]}")
    gc.collect()
    others = set(multiprocessing.active_children())
    iterator = None
    for epoch in (1, 2):
        how = {"max_sentences": 4, "num_workers": 2, "data_buffer_size": buffer_size, "disable_iterator_cache": True}
        dataset = load(task, epoch=epoch)
        iterator = task.get_batch_iterator(dataset, epoch=epoch, **how)  # the old one lives until here, as in fairseq
        assert not set(multiprocessing.active_children()) - others
        num_blocks = sum(batch["nsentences"] for batch in iterator.next_epoch_itr())
        assert num_blocks == len(task.dataset("train"))
        assert len(set(multiprocessing.active_children()) - others) == 2
    iterator.close()
    assert not set(multiprocessing.active_children()) - others, "the collector will wait for a worker"


def test_an_iterator_goes_on_after_its_workers_were_ended(tiny_data_bin):
    task = make_task(tiny_data_bin)
    iterator = task.get_batch_iterator(load(task), max_sentences=16, num_workers=1)
    first = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
    iterator.close()
    second = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
    iterator.close()
    assert len(first) == len(second) and first != second
    assert iterator.epoch == 2


def test_one_iterator_serves_all_epochs_of_a_folder(tiny_data_bin):
    task = make_task(tiny_data_bin)
    dataset = load(task)
    first = task.get_batch_iterator(dataset, max_sentences=16)
    assert task.get_batch_iterator(dataset, max_sentences=16, update_epoch_batch_itr=True) is first
    assert task.get_batch_iterator(dataset, max_sentences=16, disable_iterator_cache=True) is not first


def config(task, *words):
    parser = options.get_training_parser()
    common = ["data", "--task", task, "--arch", "fast_roberta_tiny", "--optimizer", "adam", *words]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, common))


@pytest.mark.parametrize("task", ["roberta_masked_lm", "roberta_sentence_prediction"])
def test_every_task_knows_how_many_batches_make_an_update(task):
    cfg = config(task, "--update-freq", "1,2,3", "--ddp-backend", "fully_sharded").task
    assert [BlockTask.update_freq(SimpleNamespace(cfg=cfg), epoch) for epoch in (1, 2, 3, 4, 9)] == [1, 2, 3, 3, 3]
    assert str(cfg.ddp_backend) == "fully_sharded"
    cfg = config(task).task
    assert BlockTask.update_freq(SimpleNamespace(cfg=cfg), 1) == 1
    assert str(cfg.ddp_backend) != "fully_sharded"


def whole_config(data, **changes):
    """fairseq's config with our task in it."""
    root = OmegaConf.structured(FairseqConfig)
    OmegaConf.set_struct(root, False)
    root.task = OmegaConf.structured(RobertaMaskedLMConfig(data=str(data), tokens_per_sample=32))
    root.criterion = {"_name": "roberta_masked_lm"}
    for key, value in changes.items():
        OmegaConf.update(root, key.replace("__", "."), value)
    return root


def test_fairseqs_defaults_are_silent(tiny_data_bin):
    root = whole_config(tiny_data_bin, dataset__batch_size=12)
    assert ignored_options(root.task) == []
    for option in IGNORED:
        assert option.name in root[option.section], f"fairseq has no option {option.section}.{option.name}"
    assert ignored_options(RobertaMaskedLMConfig()) == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("dataset__curriculum", 2, "--curriculum 2 has no effect"),
        ("dataset__grouped_shuffling", True, "--grouped-shuffling True has no effect"),
        ("dataset__update_ordered_indices_seed", True, "--update-ordered-indices-seed True has no effect"),
        ("distributed_training__fix_batches_to_gpus", True, "--fix-batches-to-gpus True has no effect"),
        ("dataset__dataset_impl", "lazy", "fairseq-preprocess --dataset-impl mmap"),
        ("dataset__required_seq_len_multiple", 8, "use --pad-to-multiple"),
        ("dataset__skip_invalid_size_inputs_valid_test", True, "no input is skipped"),
        ("dataset__required_batch_size_multiple", 5, "batch-size-multiple 5 has no effect on --batch-size 12"),
        ("optimization__sentence_avg", True, "mean over the predicted tokens"),
    ],
)
def test_an_option_without_effect_is_named_once(tiny_data_bin, caplog, option, value, said):
    task = RobertaMaskedLMTask.setup_task(whole_config(tiny_data_bin, dataset__batch_size=12, **{option: value}).task)
    for split in ("train", "valid"):
        task.get_batch_iterator(load(task, split=split), max_sentences=4)
    warnings = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    assert len(warnings) == 1
    assert said in warnings[0]


def test_the_limit_of_validation_is_blamed_by_its_name(tiny_data_bin):
    root = whole_config(tiny_data_bin, dataset__max_tokens=64, dataset__max_tokens_valid=16)
    task = RobertaMaskedLMTask.setup_task(root.task)
    with pytest.raises(ValueError, match=r"--max-tokens-valid \(16\) is smaller"):
        task.get_batch_iterator(load(task, split="valid"), max_tokens=16)
    with pytest.raises(ValueError, match=r"--max-tokens \(15\) is smaller"):
        task.get_batch_iterator(load(task), max_tokens=15)


def test_processes_of_torchrun_that_would_train_alone_are_refused(tiny_data_bin, monkeypatch):
    task = make_task(tiny_data_bin)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--distributed-world-size 2"):
        task.get_batch_iterator(load(task), max_sentences=4)
    task.get_batch_iterator(load(task), max_sentences=4, num_shards=2)


WARM_UPS = {  # --lr-scheduler and its options -> the last update of the warm-up
    "polynomial_decay --warmup-updates 10 --total-num-update 20": 10,
    "inverse_sqrt --warmup-updates 10": 10,
    "cosine --warmup-updates 10": 10,
    "tri_stage --warmup-steps 10 --hold-steps 5 --decay-steps 5": 10,
    "linear_stages --lr-stages 10:1,15:1,20:0": 10,
    "fixed": 0,
}


@pytest.mark.parametrize("scheduler", WARM_UPS)
def test_a_training_that_ends_within_its_warm_up_is_named_whatever_the_schedule(scheduler):
    cfg = config("roberta_masked_lm", *f"--lr 1e-3 --batch-size 2 --lr-scheduler {scheduler} --max-update 9".split())
    assert peak_update(cfg.lr_scheduler) == WARM_UPS[scheduler]
    said = "--lr is never reached: the warm-up ends at update 10, and --max-update is 9"
    assert unreached_rates(cfg) == ([said] if WARM_UPS[scheduler] else [])
    cfg.optimization.max_update = 10
    assert unreached_rates(cfg) == []


def test_decisions_by_validations_without_any_and_the_wrong_end_of_a_metric_are_named():
    cfg = config_of("--total-num-update 20 --patience 2 --disable-validation")
    assert [said.split(":")[0] for said in unmade_decisions(cfg)] == ["--patience has no effect"]
    cfg.dataset.disable_validation = False
    assert unmade_decisions(cfg) == []
    cfg.checkpoint.best_checkpoint_metric = "accuracy"
    assert "give --maximize-best-checkpoint-metric for accuracy" in unmade_decisions(cfg)[0]
    cfg.checkpoint.maximize_best_checkpoint_metric = True
    assert unmade_decisions(cfg) == []
    cfg.checkpoint.best_checkpoint_metric = "loss"
    assert "leave out --maximize-best-checkpoint-metric for loss" in unmade_decisions(cfg)[0]


@pytest.mark.parametrize("words", ["[enforce fail] can't allocate memory: you tried to allocate 4000", "other"])
def test_a_model_that_does_not_fit_into_memory_is_refused_by_its_options(tiny_data_bin, monkeypatch, words):
    def build(self, cfg, from_checkpoint=False):
        raise RuntimeError(words)

    monkeypatch.setattr(FairseqTask, "build_model", build)
    is_memory = "memory" in words
    with pytest.raises(ValueError if is_memory else RuntimeError, match="lower --encoder" if is_memory else "other"):
        make_task(tiny_data_bin).build_model(None)


def config_of(schedule):
    words = f"--lr 1e-3 --batch-size 2 --lr-scheduler polynomial_decay {schedule}"
    return config("roberta_masked_lm", *words.split())


def test_a_warm_up_longer_than_the_schedule_is_named():
    cfg = config_of("--warmup-updates 100 --total-num-update 6 --max-update 6")
    said = "--lr is never reached: the warm-up ends at update 100, and --total-num-update is 6"
    assert unreached_rates(cfg) == [said]


def test_updates_at_a_learning_rate_of_0_are_named():
    """As of a finished training of which only --max-update was raised."""
    cfg = config_of("--warmup-updates 5 --total-num-update 20 --max-update 30")
    (said,) = unreached_rates(cfg)
    assert said.startswith("nothing is learned after update 20") and said.endswith("give --total-num-update 30 as well")
    cfg.lr_scheduler.end_learning_rate = 1e-5
    assert unreached_rates(cfg) == []
    assert unreached_rates(config_of("--total-num-update 20 --max-update 20")) == []


def test_a_value_holds_from_its_update_on():
    steps = (Step(0, 64), Step(2500, 128), Step(9500, 512))
    assert parse("0:64 2500:128, 9500:512", option="--grow-max-tokens") == steps
    assert [value_at(steps, updates, default=1) for updates in (0, 2499, 2500, 9500, 10**6)] == [64, 64, 128, 512, 512]
    assert [next_step(steps, updates) for updates in (0, 2499, 2500, 9499, 9500)] == [2500, 2500, 9500, 9500, None]
    assert parse(None, option="--grow-max-tokens") == ()
    assert value_at((), 7, default=512) == 512


def test_other_texts_are_refused_by_option_and_word():
    wrong = {"": "from update 0 on", "100:64": "from update 0 on", "0:64 x:128": "'x:128'", "0:64 2500": "'2500'"}
    wrong |= {"0:64 -5:128": "'-5:128'", "0:64 2500:64": "2500:64", "0:128 2500:64": "2500:64", "0:64 0:128": "0:128"}
    wrong |= {"0:64 2500:128 2000:256": "2000:256"}
    for text, named in wrong.items():
        with pytest.raises(ValueError, match=f"--grow-tokens-per-sample.*{named}|{named}.*--grow-tokens-per-sample"):
            parse(text, option="--grow-tokens-per-sample")


def growth(block, batch, *, tokens_per_sample=512):
    given = {"grow_tokens_per_sample": block, "grow_max_tokens": batch}
    return growth_of(SimpleNamespace(tokens_per_sample=tokens_per_sample, max_tokens=4096, **given))


@pytest.mark.parametrize(
    ("block", "batch", "named"),
    [
        ("0:64 10:128", None, ("--grow-tokens-per-sample", "128", "--tokens-per-sample is 512")),
        (None, "0:1024", ("--grow-max-tokens", "1024", "--max-tokens is 4096")),
        (None, "0:256 100:4096", ("--grow-max-tokens", "from update 0 on", "256", "512")),
        ("0:64 50:512", "0:128 100:4096", ("from update 50 on", "128", "512")),
    ],
)
def test_growth_ends_at_the_options_of_the_training_and_a_batch_holds_a_block(block, batch, named):
    with pytest.raises(ValueError) as error:  # noqa: PT011  -- the table has the words
        growth(block, batch)
    assert all(word in str(error.value) for word in named)


def test_both_grow_at_their_own_updates():
    both = growth("0:64 9500:128", "0:1024 2500:2048 9500:4096", tokens_per_sample=128)
    assert [both.next_step(updates) for updates in (0, 2500, 9499, 9500)] == [2500, 9500, 9500, None]
