"""Answers of a span head by `RobertaHub`."""

import pytest
import torch

from roberta_plugin.hub import RobertaHub
from tests.tiny_hub import PIECES, check_refusals, write_hub


@pytest.fixture(scope="module", name="hub")
def hub_with_a_head(tmp_path_factory):
    hub = write_hub(tmp_path_factory.mktemp("hub"))
    hub.model.register_head("spans", "span")
    return hub


def test_a_head_that_finds_spans_is_there(tmp_path):
    hub = write_hub(tmp_path)
    hub.model.register_head("spans", "span")
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    torch.save({**state, "model": hub.model.state_dict()}, tmp_path / "model.pt")
    found, _ = RobertaHub.from_pretrained(tmp_path).model(hub.encode("good")[None], head="spans")
    expected, _ = hub.model(hub.encode("good")[None], head="spans")
    assert torch.equal(found.start, expected.start)


def test_lists_of_texts_have_the_results_of_single_texts_and_can_be_trained_on(hub):
    for found, text in zip(hub.predict("spans", PIECES), PIECES, strict=True):
        expected = hub.predict("spans", hub.encode(text)).start[0]
        torch.testing.assert_close(found.start, expected, atol=1e-5, rtol=1e-4)
    probe = torch.nn.Linear(24, 1)
    probe(hub.predict("spans", PIECES)[0].start[:1].expand(24)).backward()
    assert probe.weight.grad is not None


def test_arguments_of_other_types_are_refused_in_a_sentence(hub):
    check_refusals(hub, lambda hub, value: hub.predict("spans", value))
