"""README and recipes say what is true: links lead somewhere, commands and options exist."""

import itertools
import re
import shlex
from pathlib import Path

import pytest
import yaml
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from roberta_plugin.cli import build_parser, called_verb
from tests.conftest import REPOSITORY

PAGES = [path for path in REPOSITORY.rglob("*.md") if ".venv" not in path.parts and "results" not in path.parts]
RECIPES = sorted((REPOSITORY / "examples").rglob("*.sh"))


def commands(text, name):
    """The calls of the command `name` in all bash blocks of a page, or in a whole script, as lists of words."""
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL) or [text]
    for block in blocks:
        for call in re.findall(rf"(?:^ *|&& ){name}( .*)?$", block.replace("\\\n", " "), flags=re.MULTILINE):
            yield shlex.split(call, comments=True)


def all_commands(name):
    return [(path.name, words) for path in [*PAGES, *RECIPES] for words in commands(path.read_text(), name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page} links to {target}"


def test_roberta_commands_parse():
    found = all_commands("roberta")
    assert {words[0] for _, words in found} >= {"demo", "vocabulary", "binarize", "inspect"}
    assert {words[1] for _, words in found if words[0] == "finetune"} >= {"RTE", "race", "$task"}
    for _, words in found:
        words = ["RTE" if word == "$task" else word for word in words if word != "$@"]
        build_parser(called_verb(words)).parse_args(words)


def test_fairseq_train_commands_parse():
    found = all_commands("fairseq-train")
    assert len(found) >= 2
    for _, words in found:
        arguments = [word for word in words if word != "$@"]
        arguments = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in arguments]
        where = arguments.index("--user-dir") + 1
        arguments[where] = str(REPOSITORY / arguments[where])
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
        assert cfg.model._name.startswith("fast_roberta")
        assert cfg.task._name in ("roberta_masked_lm", "roberta_sentence_prediction")


def test_both_base_recipes_say_the_same():
    """The shell recipe and the hydra one are the paper's Table 9, option for option."""
    (words,) = [words for name, words in all_commands("fairseq-train") if name == "base.sh"]
    given = dict(itertools.pairwise(words))
    config = yaml.safe_load((REPOSITORY / "examples" / "pretrain" / "base.yaml").read_text())
    assert float(given["--lr"]) == config["optimization"]["lr"][0] == 6e-4
    assert int(given["--warmup-updates"]) == config["lr_scheduler"]["warmup_updates"] == 24000
    assert int(given["--max-update"]) == config["optimization"]["max_update"] == 500_000
    assert float(given["--weight-decay"]) == config["optimizer"]["weight_decay"] == 0.01
    assert int(given["--batch-size"]) == config["dataset"]["batch_size"]
    assert 8 * config["dataset"]["batch_size"] * config["optimization"]["update_freq"][0] == 8192
    model = config["model"]
    sizes = tuple(model[f"encoder_{name}"] for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"))
    assert sizes == (12, 768, 3072, 12)
    assert Path(config["common"]["user_dir"]).name == "roberta_plugin"
