"""Every name in fairseq's registries leads to our class, however and in whatever order the plugin is imported.

fairseq returns its own class, without a word, for a task or model name that is already taken.
"""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

CHECK = """
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

found = {
    "task roberta_masked_lm": TASK_REGISTRY["roberta_masked_lm"],
    "criterion roberta_masked_lm": CRITERION_REGISTRY["roberta_masked_lm"],
    **{
        f"{kind} {name}": registry[name]
        for name in ("roberta_sentence_prediction", "squad2", "race")
        for kind, registry in (("task", TASK_REGISTRY), ("criterion", CRITERION_REGISTRY))
    },
    "model fast_roberta": MODEL_REGISTRY["fast_roberta"],
    **{f"arch {size}": ARCH_MODEL_REGISTRY[f"fast_roberta_{size}"] for size in ("tiny", "small", "base", "large")},
}
for name, cls in found.items():
    print(name, "->", cls.__module__)
    assert cls.__module__.startswith("roberta_plugin."), f"{name} is {cls}"
assert len(found) == 13
print("all ours")
"""

USER_DIR = f"""
import argparse
from fairseq import utils
utils.import_user_module(argparse.Namespace(user_dir={str(REPOSITORY / "roberta_plugin")!r}))
"""

LINK = f"""
import os, tempfile
folder = tempfile.mkdtemp()
os.symlink({str(REPOSITORY / "roberta_plugin")!r}, os.path.join(folder, "other_name"))
""" + USER_DIR.replace(repr(str(REPOSITORY / "roberta_plugin")), 'os.path.join(folder, "other_name")')

ORDERS = {
    "plain import alone": "import roberta_plugin",
    "fairseq first": "import fairseq.tasks, fairseq.models, fairseq.criterions\nimport roberta_plugin",
    "plugin first": "import roberta_plugin\nimport fairseq.tasks, fairseq.models, fairseq.criterions",
    "user-dir alone": USER_DIR,
    "plain import, then user-dir": "import roberta_plugin\n" + USER_DIR,
    "user-dir, then plain import": USER_DIR + "\nimport roberta_plugin",
    "user-dir, a link of another name": LINK,
    "plain import, then such a link": "import roberta_plugin\n" + LINK,
}


@pytest.mark.parametrize("order", ORDERS)
def test_every_name_is_ours(order):
    done = subprocess.run(
        [sys.executable, "-c", ORDERS[order] + CHECK], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("all ours")
