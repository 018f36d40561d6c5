"""Handwritten digits in few bits: a network rounded to int8 after training, and two trained with fewer bits.

It prints the accuracy of the float32 network, of its int8 form (weights scaled by channel, activations by a calibration
with some training images), of a four-bit network with trained scales (LSQ), and of a network whose weights are -1, 0
and 1 times a trained scale, with four-bit activations. They lose at most half a point, one point, and three.
"""

import numpy as np
from digits import initial_parameters, load

import rlx
import rlx.numpy as jnp
from rlx import quant

BATCH, RATE, EPOCHS, MORE = 128, 3e-3, 12, 12
LAYERS = ("first", "second", "last")


def logits(parameters, images, rounded=lambda name, weight, x: (weight, x), taps=None):
    """Scores of the digits; `rounded` is called with each layer's weight and input, `taps` stores the inputs."""
    layout, x = ("NHWC", "HWIO", "NHWC"), images
    for name in LAYERS:
        if name == "last":
            x = rlx.lax.reduce_window(x, -np.inf, rlx.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").reshape(len(x), -1)
        if taps is not None:
            taps[name] = x
        weight, x = rounded(name, parameters[name]["weight"], x)
        if name == "last":
            return x @ weight + parameters[name]["bias"]
        x = rlx.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=layout)
        x = rlx.nn.relu(x + parameters[name]["bias"])


def trained(parameters, images, labels, epochs, rate, network):
    """Parameters after some epochs of Adam."""
    rule = rlx.optim.adam(rate)

    @rlx.jit
    def step(parameters, state, x, y):
        def loss(p):
            return -jnp.take_along_axis(rlx.nn.log_softmax(network(p, x)), y[:, None], axis=1).mean()

        change, state = rule.update(rlx.grad(loss)(parameters), state, parameters)
        return rlx.optim.apply_updates(parameters, change), state

    state, draw = rule.init(parameters), np.random.default_rng(0)
    for _ in range(epochs):
        order = draw.permutation(len(images))
        for rows in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            parameters, state = step(parameters, state, images[rows], labels[rows])
    return parameters


def accuracy(scores, labels):
    """The percentage of correctly classified images."""
    return 100 * float((np.asarray(scores).argmax(1) == labels).mean())


def after_training(parameters, images):
    """The network in int8: weights scaled by channel, activations by calibration with these images."""

    def taps(batch):
        found = {}
        logits(parameters, batch, taps=found)
        return found

    record = quant.calibrate(taps, np.split(images[:512], 4), "percentile", percentile=99.99)

    def rounded(name, weight, x):
        channels = quant.fake_quantize(weight, bits=8, axis=weight.ndim - 1)
        return channels, quant.quantize_dequantize(x, record[name])

    return rlx.jit(lambda images: logits(parameters, images, rounded))


def with_learned_scales(parameters, images, bits):
    """Parameters with a scale for each layer's weight, of `bits` bits, and for its four-bit input, and the network that
    uses them."""
    found = {}
    logits(parameters, images[:256], taps=found)
    whole = {}
    for name in LAYERS:
        weight_scale = quant.first_scale(parameters[name]["weight"], bits)
        whole[name] = {**parameters[name], "weight_scale": weight_scale, "scale": quant.first_scale(found[name], 4)}

    def network(p, images):
        def rounded(name, weight, x):
            return quant.lsq(weight, p[name]["weight_scale"], bits), quant.lsq(x, p[name]["scale"], 4)

        return logits(p, images, rounded)

    return whole, network


def main():
    """Train, round, learn in four bits and in three values; -> the largest loss as a fraction of its limit."""
    images, test_images, labels, test_labels = load()
    parameters = trained(initial_parameters(rlx.random.key(0)), images, labels, EPOCHS, RATE, logits)
    full = accuracy(rlx.jit(logits)(parameters, test_images), test_labels)
    found = {"int8 after training": (accuracy(after_training(parameters, images)(test_images), test_labels), 0.5)}
    for name, bits, bound in (("four bits", 4, 1.0), ("ternary weights", 2, 3.0)):
        start, network = with_learned_scales(parameters, images, bits)
        learned = trained(start, images, labels, MORE, RATE / 3, network)
        found[name] = accuracy(rlx.jit(network)(learned, test_images), test_labels), bound
    print(f"float32 {full:.2f} %", *(f"{name} {points:.2f} %" for name, (points, _) in found.items()), sep=", ")
    assert all(full - points <= bound for points, bound in found.values())
    return max((full - points) / bound for points, bound in found.values())


if __name__ == "__main__":
    main()
