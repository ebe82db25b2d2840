"""fairseq's configurations, composed once: half of the processor time of a tiny training would go into it."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

_TINY = "--arch fast_roberta_tiny --lr-scheduler polynomial_decay --total-num-update 1"
FREQUENT = (f"{_TINY} --task roberta_masked_lm --criterion roberta_masked_lm --optimizer adam",)


def remember_configurations() -> None:
    """Let hydra compose fairseq's configuration once for each choice of task, model, criterion and so on.

    It takes a third of a second, a fourth of it for the grammar of 308 options; other values are put into a copy.
    """
    from fairseq.dataclass import utils
    from hydra import initialize_config_dir
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    if utils.compose.__module__ == __name__:
        return
    compose, known = utils.compose, {}
    parse, parsed = OverridesParser.parse_rule, {}
    folder = str(Path(utils.__file__).parent.parent / "config")

    def remembered(name: str, *, overrides: list[str], strict: bool) -> Any:
        options = [text.partition("=")[0] for text in overrides]
        key = (
            name,
            strict,
            *(option if "." in option else text for option, text in zip(options, overrides, strict=True)),
        )
        if key not in known:
            with warnings.catch_warnings(action="ignore"), initialize_config_dir(folder, version_base="1.1"):
                known[key] = overrides, compose(name, overrides=overrides, strict=strict)
        earlier, config = known[key]
        config = copy.deepcopy(config)
        changed = [text for text, other in zip(overrides, earlier, strict=True) if text != other]
        for override in OverridesParser.create().parse_overrides(changed):
            OmegaConf.update(config, override.key_or_group, override.value())
        return config

    def parsed_once(self: OverridesParser, text: str, rule: str) -> Any:
        if (text, rule) not in parsed:
            parsed[text, rule] = parse(self, text, rule)
        return copy.copy(parsed[text, rule])

    utils.compose, OverridesParser.parse_rule = remembered, parsed_once
    utils.initialize = lambda config_path: nullcontext()  # it would read the source of all its callers


def compose_frequent_ones() -> None:
    """Compose the configurations of the trainings that tests run most, so that the forks of this process remember them."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    for words in FREQUENT:
        parser = options.get_training_parser()
        convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, ["data", *words.split()]))
