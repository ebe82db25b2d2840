"""Options without effect are named, with what to use instead; a run with fairseq's defaults says nothing."""

import pytest
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from roberta_plugin.tasks.fairseq_options import IGNORED, ignored_options
from roberta_plugin.tasks.masked_lm import RobertaMaskedLMTask
from roberta_plugin.tasks.masked_lm_options import RobertaMaskedLMConfig
from tests.unit.tasks.test_masked_lm import load, make_task


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
        (
            "dataset__required_batch_size_multiple",
            5,
            "--required-batch-size-multiple 5 has no effect on --batch-size 12",
        ),
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
