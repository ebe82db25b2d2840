"""Blocks and batches that grow: the text of the options, and what holds when."""

from types import SimpleNamespace

import pytest

from roberta_plugin.tasks.growth import Step, next_step, parse, value_at
from roberta_plugin.tasks.masked_lm_options import growth_of

STEPS = (Step(0, 64), Step(2500, 128), Step(9500, 512))


def test_a_value_holds_from_its_update_on():
    assert parse("0:64 2500:128, 9500:512", option="--grow-max-tokens") == STEPS
    assert [value_at(STEPS, updates, default=1) for updates in (0, 2499, 2500, 9500, 10**6)] == [64, 64, 128, 512, 512]
    assert [next_step(STEPS, updates) for updates in (0, 2499, 2500, 9499, 9500)] == [2500, 2500, 9500, 9500, None]
    assert parse(None, option="--grow-max-tokens") == ()
    assert value_at((), 7, default=512) == 512


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "from update 0 on"),
        ("100:64", "from update 0 on"),
        ("0:64 x:128", "'x:128'"),
        ("0:64 2500", "'2500'"),
        ("0:64 -5:128", "'-5:128'"),
        ("0:64 2500:64", "2500:64"),
        ("0:128 2500:64", "2500:64"),
        ("0:64 0:128", "0:128"),
        ("0:64 2500:128 2000:256", "2000:256"),
    ],
)
def test_other_texts_are_refused_by_option_and_word(text, named):
    with pytest.raises(ValueError, match="--grow-tokens-per-sample") as error:
        parse(text, option="--grow-tokens-per-sample")
    assert named in str(error.value)


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
    cfg = SimpleNamespace(tokens_per_sample=512, max_tokens=4096, grow_tokens_per_sample=block, grow_max_tokens=batch)
    with pytest.raises(ValueError) as error:  # noqa: PT011  -- the table has the words
        growth_of(cfg)
    assert all(word in str(error.value) for word in named)


def test_both_grow_at_their_own_updates():
    growth = growth_of(
        SimpleNamespace(
            tokens_per_sample=128,
            max_tokens=4096,
            grow_tokens_per_sample="0:64 9500:128",
            grow_max_tokens="0:1024 2500:2048 9500:4096",
        )
    )
    assert [growth.next_step(updates) for updates in (0, 2500, 9499, 9500)] == [2500, 9500, 9500, None]
