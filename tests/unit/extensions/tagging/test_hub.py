"""Answers of a token head by `RobertaHub`."""

import pytest
import torch

from tests.tiny_hub import check_refusals, write_hub


@pytest.fixture(scope="module", name="hub")
def hub_with_a_head(tmp_path_factory):
    hub = write_hub(tmp_path_factory.mktemp("hub"))
    hub.model.register_head("tags", "token", num_classes=4)
    return hub


def test_a_token_head_gives_probabilities_for_each_token(hub):
    texts = ["good bad good", "bad"]
    found = hub.predict("tags", texts)
    assert [row.shape for row in found] == [(len(hub.encode(text)), 4) for text in texts]
    for text, row in zip(texts, found, strict=True):
        torch.testing.assert_close(hub.predict("tags", hub.encode(text))[0], row, atol=1e-5, rtol=1e-5)
        logits = hub.predict("tags", [text], return_logits=True)[0]
        torch.testing.assert_close(logits.log_softmax(dim=-1), row, atol=1e-5, rtol=1e-5)


def test_arguments_of_other_types_are_refused_in_a_sentence(hub):
    check_refusals(hub, lambda hub, value: hub.predict("tags", value))
