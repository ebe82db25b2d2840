"""`roberta predict` as users call it: from the shell, with files and pipes, and its help without torch."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.forked_training import run_forked
from tests.tiny_corpus import command, environment, run
from tests.tiny_predictors import write_predictor

pytestmark = pytest.mark.integration


def test_every_form_of_input_and_output(tmp_path):
    """Through standard input and output, and through files; labels, vectors, and a line that is skipped."""
    model = write_predictor(tmp_path / "model", "single")
    texts = ["good", "bad bad", "caf\u00e9 \U0001f642"] * 20
    call, given = [*command("roberta"), "predict", str(model)], "".join(f"{text}\n" for text in texts)
    done = run_forked(call, cwd=REPOSITORY, environment=environment(), timeout=120, stdin=given)
    assert done.returncode == 0, done.stderr[-2000:]
    piped = [json.loads(line) for line in done.stdout.splitlines()]  # nothing else on standard output
    assert [answer.pop("line") for answer in piped] == list(range(1, 61))
    assert piped[0] == piped[3] and piped[0] != piped[1]

    lines = [json.dumps({"id": f"n{number}", "text": text}) for number, text in enumerate(texts)]
    lines[5] = '{"text": '
    (tmp_path / "in.jsonl").write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    call += ["--input", str(tmp_path / "in.jsonl"), "--output"]
    stopped = run([*call, str(tmp_path / "out.jsonl")])
    assert stopped.returncode == 2
    assert "in.jsonl, line 6: it is not valid JSON" in stopped.stderr
    assert "--on-error skip" in stopped.stderr and "Traceback" not in stopped.stderr
    skipped = run([*call, str(tmp_path / "out.parquet"), "--task-kind", "embedding", "--on-error", "skip"])
    assert skipped.returncode == 1, skipped.stderr
    assert "60 answers (embedding)" in skipped.stdout and "1 bad lines were skipped" in skipped.stderr
    vectors = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "out.parquet")["embedding"].to_pylist()
    assert [number for number, vector in enumerate(vectors) if vector is None] == [5]
    np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-6)


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_what_was_answered_before_a_stop_is_kept(tmp_path, sent):
    """Every answer of the first window, each in a whole line."""
    model, output = write_predictor(tmp_path / "model", "single"), tmp_path / "out.jsonl"
    call = [*command("roberta"), "predict", str(model), "--output", str(output)]
    with subprocess.Popen(
        call, cwd=REPOSITORY, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("good\n" * 1024)
        process.stdin.flush()  # and it stays open
        partial, until = tmp_path / "out.jsonl.partial", time.monotonic() + 100
        while not (partial.exists() and partial.stat().st_size) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(sent)
        assert "interrupted" in process.stderr.read()
    assert process.returncode == 128 + sent
    assert not output.exists()
    assert [json.loads(line)["label"] in "01" for line in partial.read_text().splitlines()] == [True] * 1024


def test_the_help_names_every_kind():
    done = run([*command("roberta"), "predict", "--help"], timeout=60)
    assert done.returncode == 0
    for kind in ("fill_mask", "question_answering", "embedding", "--on-error", "--batch-tokens"):
        assert kind in done.stdout
