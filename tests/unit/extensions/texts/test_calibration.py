"""Temperature and calibration error against SciPy's minimum and a plain loop."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from roberta_plugin.extensions.texts.classification import apply_temperature, fit_temperature, losses, reliability


def example(seed, *, scale=3.0, num_classes=3):
    """Logits that are `scale` times too large, and labels that they tell something about."""
    rng = np.random.default_rng(seed)
    answers = rng.integers(0, num_classes, 200)
    logits = rng.normal(size=(200, num_classes)) + 1.5 * np.eye(num_classes)[answers]
    return scale * logits, answers


@pytest.mark.parametrize(("seed", "scale"), [(0, 3.0), (1, 0.3), (2, 1.0)])
def test_the_temperature_has_the_smallest_loss_and_keeps_the_order(seed, scale):
    logits, answers = example(seed, scale=scale)
    probabilities = scipy.special.softmax(logits, axis=1)

    def loss(log_temperature):
        logs = scipy.special.log_softmax(logits / np.exp(log_temperature), axis=1)
        return -logs[np.arange(200), answers].mean()

    wanted = scipy.optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
    temperature = fit_temperature(probabilities, answers)
    assert temperature == pytest.approx(np.exp(wanted.x), rel=1e-5)
    scaled = apply_temperature(probabilities, temperature)
    np.testing.assert_allclose(scaled, scipy.special.softmax(logits / temperature, axis=1), atol=1e-12)
    assert (scaled.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert losses(scaled, answers).mean() == pytest.approx(wanted.fun) and wanted.fun <= loss(0)


def test_the_calibration_error_is_that_of_a_plain_loop():
    logits, answers = example(3)
    probabilities = scipy.special.softmax(logits, axis=1)
    total, best = 0.0, probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == answers
    for low in np.arange(15) / 15:
        inside = (best >= low) & (best < low + 1 / 15)
        if inside.any():
            total += inside.mean() * abs(is_right[inside].mean() - best[inside].mean())
    found = reliability(probabilities, answers)
    assert found["ece"] == pytest.approx(100 * total) and found["ece"] > 10
    calmed = reliability(apply_temperature(probabilities, fit_temperature(probabilities, answers)), answers)
    assert calmed["ece"] < found["ece"] / 2 and calmed["loss"] < found["loss"]


def test_without_an_error_there_is_nothing_to_fit():
    assert fit_temperature(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1])) == 1.0
