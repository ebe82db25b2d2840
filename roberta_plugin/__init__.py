"""RoBERTa (Liu et al. 2019, arXiv 1907.11692) as a fairseq plugin.

Importing this package, plainly or by `fairseq-train --user-dir roberta_plugin`, registers everything with fairseq.
The console command `roberta` alone is spared that: it registers when one of its verbs needs a model, so that
`roberta --help` answers at once and the processes that binarize text stay small.
"""

import importlib
import sys
from pathlib import Path

__version__ = "0.1.0"


def register() -> None:
    """Register tasks, models, criterions and optimizers with fairseq; calling it again changes nothing.

    fairseq imports tasks/ and models/ of a user directory by itself, but never criterions/, and nothing at all when
    the package has been imported before; so all of them are imported here by name.
    """
    from roberta_plugin import fairseq_workarounds

    fairseq_workarounds.install()
    from roberta_plugin import criterions, models, optim, tasks  # noqa: F401


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
    for path in [*folder.glob("tasks/*.py"), *folder.glob("models/*.py")]:  # what fairseq will import
        importlib.import_module(f"roberta_plugin.{path.parent.name}.{path.stem}".removesuffix(".__init__"))
    for name, module in list(sys.modules.items()):
        if name == "roberta_plugin" or name.startswith("roberta_plugin."):
            sys.modules[name.replace("roberta_plugin", alias, 1)] = module


if __name__ != "roberta_plugin":
    register_as(__name__)
elif Path(sys.argv[0] if sys.argv else "").stem != "roberta":
    register()
