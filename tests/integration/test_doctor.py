"""`roberta doctor` on the environment that runs the tests."""

import json

import pytest

from tests.tiny_corpus import command, run

pytestmark = pytest.mark.integration


def test_this_environment_is_well():
    done = run([*command("roberta"), "doctor", "--json"], fork_of="fairseq")
    report = json.loads(done.stdout)
    to_mend = [finding for finding in report["findings"] if finding["remedy"] and finding["is_needed"]]
    assert not to_mend
    assert done.returncode == 0
    assert report["ok"]
    found = {finding["what"]: finding["found"] for finding in report["findings"]}
    assert found["with fairseq"].startswith("registered")
    assert {"python", "torch", "numpy", "fairseq", "device"} <= found.keys()
