"""What a job asks SLURM for: one vocabulary, one way to sbatch."""

import pytest

from roberta_plugin.launch.resources import (
    Gpus,
    Resources,
    check_resources,
    check_text,
    gpu_option,
    parse_gpus,
    parse_sbatch,
    read_resources,
    submitit_parameters,
)


def read(**values):
    return read_resources(values, where="slurm", kind=Resources)


def asked(**values):
    return submitit_parameters(read(**values), ntasks_per_node=1, has_gpus=True)


def test_settings_become_submitits_parameters():
    settings = {"partition": "gpu", "time": "1-12:00:00", "gpus_per_node": "8", "mem_gb": "64", "cpus_per_gpu": "2"}
    assert asked(**settings) == {
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 16,
        "partition": "gpu",
        "time": 36 * 60,
        "mem": "64GB",
        "signal_delay_s": 120,
        "wckey": None,
        "additional_parameters": {"requeue": True, "gpus-per-node": "8"},
    }
    assert asked(time="5", cpus_per_gpu="2")["cpus_per_task"] == 2


def test_typed_gpus_gpus_without_gres_and_any_other_option():
    settings = {"time": "5", "gpus_per_node": "h100:8", "sbatch.mail-type": "FAIL", "sbatch.exclusive": "true"}
    assert asked(**settings)["additional_parameters"] == {
        "requeue": True,
        "gpus-per-node": "h100:8",
        "mail-type": "FAIL",
        "exclusive": True,
    }
    by_gres = asked(time="5", gpus_per_node="h100:8", gpu_request="gres")
    assert by_gres["additional_parameters"] == {"requeue": True, "gres": "gpu:h100:8"}
    without = asked(time="5", gpus_per_node="8", gpu_request="none")
    assert without["additional_parameters"] == {"requeue": True}


def test_entries_of_a_command_line_win_over_the_files_and_leave_the_others():
    settings = {"env": {"A": "1", "B_C": "2"}, "env.B_C": "3", "sbatch": ["mail-type=END", "exclusive"]}
    found = read(**settings, **{"sbatch.mail_type": "FAIL", "time": "5"})
    assert found.env == ("A=1", "B_C=3")
    assert found.sbatch_options == {"exclusive": True, "mail-type": "FAIL"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time": "soon"}, "'soon' is not a time limit"),
        ({"time": "5", "cpus_per_gpu": "all"}, "slurm: --cpus-per-gpu is 'all', which is not a whole number"),
        ({"time": "5", "gpus_per_node": "all"}, "slurm: --gpus-per-node is 'all': write how many GPUs"),
        ({"time": "5", "gpus_per_node": "h100:8", "gpu_type": "a100"}, "of type h100 and --gpu-type for a100"),
        ({"time": "5", "sbatch.array": "1-9"}, "--array follows from other settings"),
        ({"time": "5", "sbatch.comment": "a\nb"}, "must not hold a line break"),
        ({"time": "5", "partition": "a\nb"}, "must not hold a line break"),
        ({"time": "1"}, "--signal-delay .* is not shorter than --time"),
        ({"time": "5", "env": "word"}, "--env 'word' must have the form NAME=VALUE"),
        ({"time": "5", "mem": "64GB"}, "slurm has the unknown key 'mem' .* mem_gb"),
        ({"time": "5", "tine": "6"}, "unknown key 'tine'"),
        ({"time": "5", "mem_gb": "64", "sbatch.mem_per_gpu": "8G"}, "--mem-gb and --sbatch mem-per-gpu exclude each o"),
        ({"time": "5", "gpus_per_node": "8", "sbatch.gres": "gpu:h100:4"}, "gpu:h100:4 and --gpus-per-node 8 ask for"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        check_resources(read(**settings))


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
        (Gpus(8, "h100"), "gres", {"gres": "lustre:1,shard:2"}, {"gres": "lustre:1,shard:2,gpu:h100:8"}),
        (Gpus(8, "h100"), "gres", {"gres": "lustre:1,gres/gpu:8(S:0)"}, {}),
        (Gpus(1, None), "gres", {"gres": "gpu"}, {}),
    ],
)
def test_how_gpus_are_asked_for(gpus, request_, sbatch, option):
    assert gpu_option(gpus, request=request_, sbatch=sbatch) == option


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
