"""What jobs ask SLURM for."""

import pytest

from roberta_plugin.training.sbatch_options import Gpus, check_text, gpu_option, parse_gpus, parse_sbatch


def test_gpus_and_their_type():
    assert parse_gpus("8") == (8, None)
    assert parse_gpus(0) == (0, None)
    assert parse_gpus("h100:8") == (8, "h100")
    assert parse_gpus("nvidia_a100-sxm4-80gb:4") == (4, "nvidia_a100-sxm4-80gb")
    for text in ("h100", "8:h100", "-1", "", "a b:2", "1.5"):
        with pytest.raises(ValueError, match="as h100:8"):
            parse_gpus(text)


@pytest.mark.parametrize(
    ("gpus", "request_", "sbatch", "option"),
    [
        (Gpus(8, None), "gpus-per-node", {}, {"gpus-per-node": "8"}),
        (Gpus(8, "h100"), "gpus-per-node", {}, {"gpus-per-node": "h100:8"}),
        (Gpus(8, "h100"), "gres", {}, {"gres": "gpu:h100:8"}),
        (Gpus(8, "h100"), "none", {}, {}),
        (Gpus(0, None), "gpus-per-node", {}, {}),
        (Gpus(8, None), "gpus-per-node", {"gres": "gpu:h100:8"}, {}),
        (Gpus(8, None), "gpus-per-node", {"gres": "lustre:1"}, {"gpus-per-node": "8"}),
    ],
)
def test_how_gpus_are_asked_for(gpus, request_, sbatch, option):
    assert gpu_option(gpus, request=request_, sbatch=sbatch) == option


def test_another_way_to_ask_is_refused():
    with pytest.raises(ValueError, match="--gpu-request must be one of gpus-per-node, gres, none, got 'all'"):
        gpu_option(Gpus(1, None), request="all", sbatch={})


def test_options_with_and_without_a_value():
    words = [
        "exclusive",
        "contiguous=",
        "spread-job=True",
        "mail_type=FAIL",
        "comment=a=b",
        "overcommit=FALSE",
        "hold=~",
    ]
    assert parse_sbatch(words) == {
        "exclusive": True,
        "contiguous": True,
        "spread-job": True,
        "mail-type": "FAIL",
        "comment": "a=b",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a b=1"], "'a b=1' must be NAME=VALUE"),
        (["=1"], "must be NAME=VALUE"),
        (["ntasks_per_node=1"], "--ntasks-per-node follows from other settings"),
        (["export=NONE"], "--export cannot be given, because the settings env and inherit choose"),
        (["parsable"], "--parsable cannot be given, because it changes what sbatch prints"),
        (["comment=a", "comment=b"], "comment is given twice"),
        (["comment=a\ntouch b"], "--sbatch comment is .* must not hold a line break"),
    ],
)
def test_options_that_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        parse_sbatch(words)


def test_control_characters_are_refused():
    check_text({"--name": "a name", "--qos": None})
    for text in ("a\nb", "a\rb", "a\x00b"):
        with pytest.raises(ValueError, match="--name is"):
            check_text({"--name": text})
