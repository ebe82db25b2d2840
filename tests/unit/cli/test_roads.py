"""Every option of every verb has an effect on the road that the command takes, or is refused.

`ROADS` has the options with a meaning on some roads alone, and a command on another one, which must name the option;
`EVERYWHERE` the others. A new option is in neither: decide, and add it. Options of tasks and kinds are tested in
tests/unit/finetuning.
"""

import argparse
import json
from dataclasses import fields

import pytest

from roberta_plugin.cli import OWN_VERBS, build_parser, main
from roberta_plugin.registry import ACTIONS, EXPORT_OPTIONS, IMPORT_OPTIONS, KINDS, PREDICT_OPTIONS
from roberta_plugin.settings import flag
from tests.tiny_tokenizers import byte_level_bpe

LOOKS = {"--dry-run", "--report-only", "--grid-only"}
"""Show something of the same command, instead of doing it: other options stay as they are."""
EVERYWHERE = {
    "doctor": "--json",
    "demo": "--output-dir --updates --seed",
    "pretrain": "--recipe --without --output-dir --dry-run",
    "recipes": "",
    "check": "--valid --tokenizer --format",
    "tokenizer train": "--kind --output-dir --vocab-size --sample-megabytes --no-progress --overwrite --skip-bad-lines "
    "--format",
    "tokenizer show": "",
    "binarize": "--output-dir --no-progress --tokenizer --keep-spaces --skip-bad-lines --split-sentences --format --workers "
    "--blank-line-after-files --max-unknown --overwrite --part-bytes --threshold --nwords --padding-factor",
    "inspect": "--split",
    "prepare": "--raw --tokenizer --dict --max-length --output-dir --overwrite",
    "finetune": "--raw --tokenizer --max-length --output-dir --data --from-scratch --seeds --quick --epochs --only --set "
    "--select --checkpoint --patience --label-smoothing --slurm --grid-only --model",
    "evaluate": "--output-dir --no-progress --results",
    "predict": "--task-kind --input --output --data --tokenizer --max-length --batch-tokens --device "
    "--precision --on-error --no-progress --text-column --id-column",
    "export": "--to --output-dir --data --tokenizer --head --labels --license --language --push",
    "import": "--output-dir --data --tokenizer --labels --no-comparison",
    "user-dir": "--recipes",
    "profile": "--output-dir --steps --warm-up --rows",
    "launch": "--config --nodes --gpus-per-node --gpu-type --gpu-request --cpus-per-gpu --mem-gb --partition --time "
    "--account --qos --constraint --exclude --modules --conda --env --inherit --setup --sbatch --signal-delay "
    "--output-dir --name --container --port --checkpoint-minutes --preflight-seconds --accept-changes --max-requeues "
    "--dry-run",
    "train": "--config --env --output-dir --name --checkpoint-minutes --accept-changes",
    "jobs": "",
    "sweep": "--output-dir --parallel --slurm --report-only --renew-code --ensemble --keep --dry-run",
}
EVERYWHERE["fill-mask"] = EVERYWHERE["predict"]
ROADS = {
    "pretrain": {
        **{f"--{name}": f"bin --{name} rows" for name in ("valid", "test", "text-column")},
        "--tokenizer": "bin --tokenizer tok",
        "--vocab-size": "bin --vocab-size 400",
        "--skip-bad-lines": "bin --skip-bad-lines",
        "--format": "bin --format jsonl",
        "--delimiter": "bin --delimiter ;",
        "--hours": "bin --hours 1 --updates 30",
        "--updates": "bin --updates 30 --hours 1",
        "--slurm": "bin --slurm time=1",
    },
    "check": {"--text-column": "text --text-column x", "--delimiter": "text --delimiter ;"},
    "tokenizer train": {
        "--input": "--input text --corpora . --output-dir o",
        "--corpora": "--corpora . --input text --output-dir o",
        "--text-column": "--input text --text-column x --output-dir o",
        "--delimiter": "--input text --delimiter ; --output-dir o",
        "--dict": "--kind whitespace --dict tok/dict.txt --input text --output-dir o",
        "--alpha": "--input text --alpha 0.5 --output-dir o",
        "--min-frequency": "--input text --kind sentencepiece --min-frequency 3 --output-dir o",
        "--add-prefix-space": "--input text --kind sentencepiece --add-prefix-space --output-dir o",
    },
    "binarize": {
        **{
            f"--{name}": f"--{name} text --corpora . --tokenizer tok --output-dir o"
            for name in ("train", "valid", "test")
        },
        "--split": "--split a text --corpora . --tokenizer tok --output-dir o",
        "--corpora": "--corpora . --train text --tokenizer tok --output-dir o",
        "--dict": "--train text --dict tok/dict.txt --threshold 2 --tokenizer tok --output-dir o",
        "--text-column": "--train text --text-column x --tokenizer tok --output-dir o",
        "--delimiter": "--train rows.jsonl --delimiter ; --tokenizer tok --output-dir o",
    },
    "finetune": {
        **{
            f"--{name}": f"made --raw . --model m --output-dir o --slurm time=1:00:00 --{name} 2"
            for name in ("retries", "gpus-per-run")
        },
        **{
            f"--{name}": f"made --raw . --model m --output-dir o --grid-only --{name} {value}"
            for name, value in (("parallel", 2), ("keep", "all"))
        },
        "--device": "made --raw . --model m --output-dir o --slurm time=1:00:00 --device cpu",
        "--folds": "made --data d --model m --output-dir o --folds 3",
    },
    "evaluate": {
        **{
            f"--{name}": f"--results r --output-dir o --{name} {value}"
            for name, value in (
                ("data", "d"),
                ("checkpoint", "c"),
                ("split", "valid"),
                ("max-tokens", 9),
                ("device", "cpu"),
                ("precision", "bf16"),
            )
        },
        "--submission": "--data d --checkpoint c --output-dir o --submission x",
        "--leaderboard": "--data d --checkpoint c --output-dir o --leaderboard glue",
    },
    "predict": {
        "--format": "m TEXT --format csv",
        "--delimiter": "m TEXT --delimiter ;",
    },
    "import": {"--allow-pickle": "tok --allow-pickle --output-dir o"},
    "export": {
        "--layout": "m --to huggingface --output-dir o --layout 2019",
        "--half": "m --to huggingface --output-dir o --half",
        "--private": "m --to huggingface --output-dir o --private",
    },
    "launch": {
        "--container-runtime": "--output-dir o --container-runtime apptainer -- bin",
        "--container-mounts": "--output-dir o --container-mounts a:b -- bin",
        "--batch-sequences": "--output-dir o --batch-sequences 8 --batch-tokens 512 -- bin",
        "--batch-tokens": "--output-dir o --batch-tokens 512 --batch-sequences 8 -- bin",
    },
    "train": {
        **{
            f"--{name}": f"--output-dir o --{name} {value} -- bin"
            for name, value in {
                "nodes": 2,
                "gpus-per-node": 2,
                "gpu-type": "a",
                "gpu-request": "gres",
                "cpus-per-gpu": 2,
                "mem-gb": 3,
                "partition": "p",
                "time": "1:00:00",
                "account": "a",
                "qos": "q",
                "constraint": "c",
                "exclude": "n",
                "modules": "m",
                "conda": "c",
                "inherit": "none",
                "setup": "s",
                "sbatch": "x=1",
                "signal-delay": 3,
                "container": "c",
                "container-runtime": "apptainer",
                "container-mounts": "a:b",
                "port": 2000,
                "preflight-seconds": 3,
                "max-requeues": 3,
            }.items()
        },
        "--batch-sequences": "--output-dir o --batch-sequences 8 --batch-tokens 512 -- bin",
        "--batch-tokens": "--output-dir o --batch-tokens 512 --batch-sequences 8 -- bin",
    },
    "jobs": {"--node": "--node 1", "--lines": "report runs/a --lines 3", "--watch": "logs runs/a --watch 3"},
    "sweep": {
        **{f"--{name}": f"g.yaml --output-dir o --slurm time=1 --{name} 2" for name in ("retries", "gpus-per-run")},
        "--wait": "g.yaml --output-dir o --wait",
    },
}
ROADS["fill-mask"] = ROADS["predict"]
BY_MODEL = {name: "--text-pair-column --head --top-k" for name in ("predict", "fill-mask")}
"""Options of some kinds, refused once the model says its kind: test_options_of_another_kind_are_refused."""
OF_EXTENSIONS = {
    **dict.fromkeys(("predict", "fill-mask"), PREDICT_OPTIONS),
    "export": EXPORT_OPTIONS,
    "import": IMPORT_OPTIONS,
}
"""Options of these are in tests/unit/extensions/test_roads.py."""


def parsers():
    for verb in OWN_VERBS:
        parser = build_parser(verb)
        (verbs,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        actions = [each for each in verbs.choices[verb]._actions if isinstance(each, argparse._SubParsersAction)]
        for name, chosen in actions[0].choices.items() if actions else [(verb, verbs.choices[verb])]:
            if not actions or ACTIONS.owner(f"{verb} {name}").name == "trunk":
                yield (f"{verb} {name}" if actions else verb), chosen


def options(parser):
    tasks = {
        action
        for group in parser._action_groups
        if group.title == "options of the task"
        for action in group._group_actions
    }
    found = (action.option_strings for action in parser._actions if action not in tasks)
    return {next(name for name in names if name.startswith("--")) for names in found if names} - {"--help"}


def test_the_road_of_every_option_is_known():
    for name, parser in parsers():
        known = [*EVERYWHERE[name].split(), *ROADS.get(name, {}), *BY_MODEL.get(name, "").split()]
        assert len(known) == len(set(known)), name
        registry = OF_EXTENSIONS.get(name, {})
        slices = [registry.load(each) for each in registry]
        assert options(parser) - {flag(item) for each in slices for item in fields(each)} == set(known), name


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roads")
    (folder / "text").write_text("A line of text.\n")
    (folder / "rows.jsonl").write_text(json.dumps({"text": "A line."}) + "\n")
    for name in ("bin", "tok"):
        (folder / name).mkdir()
        byte_level_bpe().save(folder / name)
        (folder / name / "dict.txt").write_text("".join(f"{index} 1\n" for index in range(257)))
    return folder


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (verb, option)
        for verb, cases in ROADS.items()
        for option in cases
        if verb != "fill-mask" or "fill_mask" in KINDS
    ],
    ids=lambda value: value,
)
def test_an_option_without_effect_on_the_road_taken_is_refused_by_name(verb, option, work, monkeypatch, capsys):
    monkeypatch.chdir(work)
    assert main([*verb.split(), *ROADS[verb][option].split()]) == 2
    error = capsys.readouterr().err
    assert option in error and "Traceback" not in error
    assert not (work / "o").exists() and not (work / "runs").exists()
