"""RoBERTa (Liu et al. 2019, arXiv 1907.11692) as a fairseq plugin.

Importing this package, plainly or by `fairseq-train --user-dir roberta_plugin`, registers everything with fairseq.
The console command `roberta` alone is spared that: it registers when one of its verbs needs a model, so that
`roberta --help` answers at once and the processes that binarize text stay small.
"""

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


if Path(sys.argv[0] if sys.argv else "").stem != "roberta":
    register()
