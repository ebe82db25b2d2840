"""Rows that are held out of a table: which models may be evaluated on them."""

from pathlib import Path

import pytest

from roberta_plugin.finetuning import identity
from tests.tiny_tables import rows_of

PATH = Path("model.pt")
ROWS = rows_of("classification", 60)


def state_of(prepared):
    return {"task_state": {identity.KEY: identity.describe(prepared)}}


@pytest.mark.parametrize("kind", ["classification", "embedding"])
@pytest.mark.parametrize(
    ("trained", "given", "said"),
    [
        ({"valid_share": 0.4}, {"valid_share": 0.2}, r"--valid-share was 0\.4 and is 0\.2 now"),
        ({"fold": "1/3"}, {"fold": "2/3"}, r"--fold was 1/3 and is 2/3 now"),
        ({"valid": "dev.csv"}, {}, r"--valid-share was not given and is 0\.1 now"),
    ],
)
def test_rows_that_a_model_was_trained_on_are_not_its_development_set(
    prepare_table, tmp_path, kind, trained, given, said
):
    rows = {"rows": ROWS} if kind == "classification" else {}
    prepare_table(kind, **rows)
    (tmp_path / "dev.csv").write_bytes((tmp_path / "my.csv").read_bytes())
    state = state_of(prepare_table(kind, **rows, **trained))
    ours = prepare_table(kind, **rows, test="dev.csv", **given)
    identity.check_task(state, ours, checkpoint=PATH)
    identity.check_held_out(state, ours, "test", checkpoint=PATH)  # a file, which no option holds out
    with pytest.raises(ValueError, match=f"trained on rows of the split 'valid' of .*{said}.*--test FILE"):
        identity.check_held_out(state, ours, "valid", checkpoint=PATH)


def test_models_of_different_shares_are_evaluated_on_the_same_file(prepare_table, tmp_path):
    state = state_of(prepare_table(rows=ROWS, valid_share=0.4))
    identity.check_held_out(state, prepare_table(rows=ROWS, valid_share=0.4), "valid", checkpoint=PATH)
    (tmp_path / "dev.csv").write_bytes((tmp_path / "my.csv").read_bytes())
    same_file = prepare_table(rows=ROWS, valid="dev.csv")
    identity.check_task(state, same_file, checkpoint=PATH)
    identity.check_held_out(state, same_file, "valid", checkpoint=PATH)
