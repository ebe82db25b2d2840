"""Our model against Hugging Face's RobertaForMaskedLM, and the key map between them in both directions."""

import torch

from roberta_plugin.conversion.huggingface_parameters import from_hugging_face, to_hugging_face
from roberta_plugin.conversion.portable import Head
from tests.hugging_face import import_transformers
from tests.refusals import refused
from tests.tiny_models import MAX_POSITIONS, make_batch, our_model

transformers = import_transformers()
MASKED_LM = Head(kind="masked_lm", name="masked_lm")
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}


def hugging_face_model():
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    config = transformers.RobertaConfig(
        **sizes, vocab_size=75, max_position_embeddings=MAX_POSITIONS + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(3)
    return transformers.RobertaForMaskedLM(config).eval()


def assert_same_outputs(theirs, ours):
    tokens, _, _ = make_batch()
    is_token = tokens.ne(1)
    expected = theirs(input_ids=tokens, attention_mask=is_token.long()).logits
    torch.testing.assert_close(ours(tokens)[0][is_token], expected[is_token], **TOLERANCE)


def test_hugging_face_loads_our_weights():
    ours, theirs = our_model().eval(), hugging_face_model()
    state = to_hugging_face({"model": ours.state_dict()}, MASKED_LM, is_tied=False)
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"roberta.embeddings.position_ids"}
    assert_same_outputs(theirs, ours)


def test_we_load_hugging_faces_weights():
    theirs, ours = hugging_face_model(), our_model(seed=5).eval()
    with torch.no_grad():
        theirs.roberta.embeddings.token_type_embeddings.weight.normal_()  # must not be lost
    ours.load_state_dict(from_hugging_face(theirs.state_dict(), MASKED_LM)[0])
    assert_same_outputs(theirs, ours)


def test_there_and_back_is_the_identity():
    state = our_model().state_dict()
    back = from_hugging_face(to_hugging_face({"model": state}, MASKED_LM), MASKED_LM)[0]
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_a_state_dict_of_another_model_is_refused():
    other, ours = (
        {"bert.pooler.weight": torch.zeros(1)},
        {"encoder.sentence_encoder.layers.0.lora.weight": torch.zeros(1)},
    )
    refused(r"bert\.pooler\.weight has no counterpart", from_hugging_face, other, MASKED_LM)
    refused("has no counterpart", to_hugging_face, {"model": ours}, MASKED_LM)
