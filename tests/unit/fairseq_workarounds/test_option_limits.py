"""Values that no training can use are refused by option, on the command line of fairseq-train and as its config."""

import copy
import importlib.util

import pytest
from omegaconf import OmegaConf

from roberta_plugin.fairseq_workarounds.option_limits import LIMITS, check_limits, check_schedule
from roberta_plugin.launch import arguments
from tests.refusals import refused
from tests.tiny_corpus import launched_words

OUT_OF_RANGE = {
    "--seed": ("4294967296", "at most 4294967295, got 4294967296"),
    "--fixed-validation-seed": ("99999999999999999999999", "at most 4294967295, got 1e+23"),
    "--required-batch-size-multiple": ("0", "1 or more, got 0"),
    "--distributed-world-size": ("0", "1 or more, got 0"),
    "--distributed-port": ("70000", "at most 65535, got 70000"),
    "--num-workers": ("99999", "at most 1024, got 99999"),
    "--batch-size": ("99999999999999999999", "at most 2147483647, got 1e+20"),
    "--update-freq": ("1,99999999999999", "at most 2147483647, got 1e+14"),
    "--stop-time-hours": ("nan", "0 or more, got nan"),
    "--clip-norm": ("-1", "0 or more, got -1"),
    "--lr": ("inf", "at most 3.40282e+38, got inf"),
    "--keep-interval-updates-pattern": ("0", "-1, or 1 or more, got 0"),
    "--patience": ("-2", "-1 or more, got -2"),
}


@pytest.fixture(scope="module")
def options():
    """The options of a training, as a namespace and as fairseq's config."""
    parsed = arguments.parse([*launched_words("data"), "--total-num-update", "9"])
    return parsed, arguments.to_config(parsed)


@pytest.mark.parametrize("option", OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_in_both_forms_of_the_options(option, options):
    text, expected = OUT_OF_RANGE[option]
    name = option.removeprefix("--").replace("-", "_")
    value = [float(word) for word in text.split(",")]
    value = value if name in ("lr", "update_freq") else int(text) if text.lstrip("-").isdecimal() else value[0]
    parsed, config = map(copy.deepcopy, options)
    setattr(parsed, name, value)
    section = next(limit.section for limit in LIMITS if limit.name == name)
    config = OmegaConf.create({section: {**config[section], name: value}})
    for given in (parsed, config):
        said = refused(f"^{option} must be ", check_limits, given)
        assert said == f"{option} must be {expected}."


def test_the_words_of_a_command_are_checked(tmp_path):
    parsed = arguments.parse([*launched_words(tmp_path), "--total-num-update", "9", "--seed", "4294967296"])
    refused("--seed must be at most 4294967295", arguments.check_options, parsed)


def test_every_option_of_the_table_is_one_of_fairseq_s_and_its_default_is_within(options):
    _, config = options
    check_limits(config)
    sections = {limit.section for limit in LIMITS} - {"lr_scheduler", "optimizer"}  # which differ by what was chosen
    assert all(limit.name in config[limit.section] for limit in LIMITS if limit.section in sections)


def test_asynchronous_checkpoints_without_their_package_are_refused(options, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    parsed, config = map(copy.deepcopy, options)
    parsed.write_checkpoints_asynchronously = config.checkpoint.write_checkpoints_asynchronously = True
    for given in (parsed, config):
        refused("needs the package iopath", check_limits, given)


SCHEDULES = {
    "inverse_sqrt --warmup-updates 0": "--warmup-updates 0.*updates that it divides by is 0",
    "tri_stage --warmup-steps 5": "--decay-steps 0.*divides by is 0",
    "tri_stage": "please specify steps or phase_ratio",
    "triangular --max-lr 1e-9": "max_lr must be more than lr",
    "cosine": "Either --max_update or --lr-period-updates must be set",
    "reduce_lr_on_plateau --lr-shrink 1.5": "--lr-shrink 1.5.*Factor should be < 1.0",
    "step --lr-decay 2": "--lr-decay 2",
    "fixed": "",
    "cosine --lr-period-updates 9": "",
    "triangular --max-lr 1": "",
    "reduce_lr_on_plateau": "",
    "inverse_sqrt": "",
    "polynomial_decay --total-num-update 9": "",
    "manual --update2lr {'1':1e-3}": "",
}


@pytest.mark.parametrize("words", SCHEDULES)
def test_a_schedule_that_cannot_begin_is_refused_by_its_options(words):
    given = launched_words("data")
    for option in ("--lr-scheduler", "--warmup-updates"):
        at = given.index(option)
        del given[at : at + 2]
    parsed = arguments.parse([*given, "--lr-scheduler", *words.split()])
    forms = [parsed] if words in list(SCHEDULES)[3:-2] else [parsed, arguments.to_config(parsed)]
    for options in forms:
        if SCHEDULES[words]:
            refused(
                f"--lr-scheduler {words.split()[0]} cannot begin with .*{SCHEDULES[words]}", check_schedule, options
            )
        else:
            check_schedule(options)
