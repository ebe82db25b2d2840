"""A recipe that passes all checks, for tests that change one thing about it."""

from pathlib import Path

from roberta_plugin.launch.recipe import LaunchSettings
from tests.tiny_corpus import train_command


def good_recipe(
    data_bin: Path, output_dir: Path, *options: str, without: tuple[str, ...] = (), **fields
) -> LaunchSettings:
    """A recipe for the tiny corpus; `without` names options (with a value each) to leave out."""
    words = train_command(data_bin, output_dir)[1:]
    for option in ("--save-dir", "--log-file", "--user-dir", *without):
        at = words.index(option)
        del words[at : at + 2]
    train = (*words, "--total-num-update", "100", *options)
    return LaunchSettings(**{"output_dir": output_dir, "train": train, "nodes": 2, "gpus_per_node": 2, **fields})
