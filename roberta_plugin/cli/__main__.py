"""`python -m roberta_plugin.cli`: the `roberta` command where its script is not on PATH."""

import sys

from roberta_plugin.cli import main

sys.exit(main())
