"""The learning rate of --lr-stages: beside fairseq's own schedules, and in float64."""

import math

import pytest
import torch
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import (
    PolynomialDecayLRSchedule,
    PolynomialDecayLRScheduleConfig,
)
from omegaconf import OmegaConf

from roberta_plugin.optim.adamw import RobertaAdamW, RobertaAdamWConfig
from roberta_plugin.optim.stages import LinearStages, LinearStagesConfig, parse, share_at


def rates(schedule, config, *, of):
    """The rate of each update, as fairseq's trainer sets it."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    cfg = OmegaConf.structured(RobertaAdamWConfig)
    cfg.lr = [1.5e-3]
    optimizer = RobertaAdamW(cfg, [parameter])
    made = schedule(config, optimizer)
    made.step_begin_epoch(1)
    found = []
    for update in range(1, of + 1):
        found.append(optimizer.get_lr())
        made.step_update(update)
    return found


def stages(text, **options):
    cfg = LinearStagesConfig(lr_stages=text, **options)
    cfg.lr = [1.5e-3]
    return cfg


def test_a_warm_up_and_a_linear_decay_are_those_of_polynomial_decay():
    theirs = PolynomialDecayLRScheduleConfig(warmup_updates=30, total_num_update=200)
    theirs.lr = [1.5e-3]
    expected = rates(PolynomialDecayLRSchedule, theirs, of=205)
    assert rates(LinearStages, stages("30:1 200:0"), of=205) == pytest.approx(expected, rel=1e-12, abs=1e-18)


def test_a_constant_rate_jumps_and_the_last_stage_may_fall_by_the_square_root():
    points = parse("10:0.5 20:0.5 20:1, 30:1 50:0")
    assert [share_at(points, update) for update in (5, 10, 19, 20, 29, 40, 50, 99)] == pytest.approx(
        [0.25, 0.5, 0.5, 1, 1, 0.5, 0, 0]
    )
    assert [share_at(points, update, shape="1-sqrt") for update in (5, 20, 30, 35, 50)] == pytest.approx(
        [0.25, 1, 1, 1 - math.sqrt(0.25), 0]
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [("", "missing"), ("1000", "'1000'"), ("10:1 x:0", "'x:0'"), ("10:-1", "'10:-1'"), ("20:1 10:0", "10:0")],
)
def test_other_stages_are_refused_by_word(text, named):
    with pytest.raises(ValueError, match="--lr-stages") as error:
        parse(text)
    assert named in str(error.value)


def test_a_rate_for_each_epoch_is_refused():
    cfg = stages("10:1")
    LinearStages.check_options(cfg)
    cfg.lr = [1e-3, 2e-3]
    with pytest.raises(ValueError, match=r"--lr 0\.001,0\.002.*--lr-stages"):
        LinearStages.check_options(cfg)
