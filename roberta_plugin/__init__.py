"""RoBERTa (Liu et al. 2019, arXiv 1907.11692) as a fairseq plugin.

`fairseq-train --user-dir roberta_plugin` registers everything with fairseq. So does importing this package in a program
that has imported fairseq already. A program that has not calls `roberta_plugin.register()` before it asks fairseq for
our tasks and models; `RobertaHub` and the commands do so themselves. A plain import stays light: neither torch nor
fairseq is loaded.

The layers, top to bottom; a module imports only from layers below it:

    extensions/           one folder for each task and capability; the rest knows none by name
    cli/                  the command `roberta`: parse, call, print
    experiments/          many trainings: sweeps, the paper's fine-tuning procedure
    pretraining/          one pretraining, from text to results, by a recipe
    launch/               fairseq-train: its arguments, run folder, process and SLURM job, through faults
    prediction/           a model's answers about new text, for every kind of task
    hub/                  a trained model in a few lines of Python
    conversion/           models from and for Hugging Face, fairseq and ONNX Runtime
    tasks/  criterions/   registration with fairseq, and wiring
    fairseq_workarounds/  faults of fairseq that we work around, by number
    optim/                roberta_adamw
    finetuning/           benchmarks, kinds of tasks and own tables: official files in, official metrics out
    models/               config -> encoder -> heads
    data/                 text in, batches out
    runs                  a training's folder: record, state, chosen checkpoint
    checkpoint_files      whole or damaged?            json_files   errors that name the file
    record                made from what, and what differs now
    stop_signals          SIGINT and SIGTERM           files        atomic writing
    machine               usable cores                 progress     bars and log lines
    locks                 flock
    extras                optional packages         foreign_fields  other programs' files: what becomes of each field
    fairseq_import        without side effects         reports        tables, plots
    settings              dataclasses from texts, and their options
    registry              what extensions add, by sort and name
    moved                 former names of modules     former_fields  and of fields
    option_slices         options that extensions add to a dataclass
    spelling              names that look alike
    tables                CSV, TSV, JSON Lines, Parquet, Arrow -> rows
"""

import importlib
import sys
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def register() -> None:
    """Register tasks, models, criterions and optimizers with fairseq; calling it again changes nothing.

    fairseq imports tasks/ and models/ of a user directory by itself, but never criterions/, and nothing at all when
    the package has been imported before; so all of them are imported here by name.
    """
    from roberta_plugin import fairseq_workarounds

    fairseq_workarounds.install()
    from roberta_plugin import criterions, models, optim, tasks  # noqa: F401
    from roberta_plugin.models.roberta import FastRobertaModel
    from roberta_plugin.tasks.trainings import register_trainings

    register_trainings()

    FastRobertaModel.from_pretrained = classmethod(_from_pretrained)
    fairseq_workarounds.starts.find_model = _find_model


def _from_pretrained(_model: type, *arguments: Any, **options: Any) -> Any:
    """A `RobertaHub`, for those who look for it at the model's class as with fairseq's models."""
    from roberta_plugin.hub.interface import from_pretrained

    return from_pretrained(*arguments, **options)


def _find_model(path: Path) -> Path:
    """The checkpoint of a model that is named to start from, as all commands find it."""
    from roberta_plugin.conversion.convert import imported_checkpoint

    return imported_checkpoint(path)


def register_as(alias: str) -> None:
    """Register roberta_plugin, and let `alias` and all below it be names of the same modules.

    For `fairseq-train --user-dir` with a symbolic link of another name: fairseq imports the package by that name, and
    would register everything twice.
    """
    folder = Path(__file__).resolve().parent
    if folder.name != "roberta_plugin":
        raise ImportError(f"The plugin's folder must be called roberta_plugin, and {folder} is not: rename it.")
    sys.path.append(str(folder.parent))
    package = importlib.import_module("roberta_plugin")
    package.register()
    for path in [*folder.glob("tasks/*.py"), *folder.glob("models/*.py")]:  # those that fairseq will import
        importlib.import_module(f"roberta_plugin.{path.parent.name}.{path.stem}".removesuffix(".__init__"))
    for name, module in list(sys.modules.items()):
        if name == "roberta_plugin" or name.startswith("roberta_plugin."):
            sys.modules[name.replace("roberta_plugin", alias, 1)] = module


if __name__ != "roberta_plugin":
    register_as(__name__)
else:
    from roberta_plugin import moved

    moved.install()
    if "fairseq" in sys.modules:
        register()
