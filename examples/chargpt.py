"""A small GPT learns to write Python from the standard library's own source.

The loss, in nats per character, falls from about 4.6 (guessing) to below 2.0, and then the model writes a
few lines that look like Python. Attention, layer norm and the sampling loop are ordinary functions; the whole
training step is one jitted program. `--steps` trains for longer or shorter.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import numpy as np

import rlx
import rlx.numpy as jnp

WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 32
PEAK_RATE, WARMUP, STEPS = 4e-3, 30, 500


def corpus(size=400_000):
    """The beginning of the standard library as characters: (the alphabet, the text as numbers)."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = ""
    for file in files:
        text += "".join(c for c in file.read_text(encoding="utf-8", errors="ignore") if c == "\n" or " " <= c <= "~")
        if len(text) >= size:
            break
    alphabet = sorted(set(text))
    numbers = {c: i for i, c in enumerate(alphabet)}
    return alphabet, np.array([numbers[c] for c in text[:size]], np.int32)


def initial_parameters(key, vocabulary):
    """Weights with a scale of 0.05, layer norms that start as the identity."""
    shapes = {"attend": (WIDTH, 3 * WIDTH), "mix": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    keys = iter(rlx.random.split(key, 2 + LAYERS * len(shapes)))

    def weight(shape):
        return 0.05 * rlx.random.normal(next(keys), shape)

    def block():
        norms = {name: {"scale": jnp.ones(WIDTH), "shift": jnp.zeros(WIDTH)} for name in ("before", "between")}
        return norms | {name: weight(shape) for name, shape in shapes.items()}

    layers = [block() for _ in range(LAYERS)]
    return {"letters": weight((vocabulary, WIDTH)), "places": weight((CONTEXT, WIDTH)), "layers": layers}


def normalise(x, norm):
    """Layer norm."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * rlx.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) * norm["scale"] + norm["shift"]


def attention(x, layer):
    """Causal self-attention with HEADS heads over a sequence of shape (length, WIDTH)."""
    length = x.shape[0]
    query, key, value = (
        part.reshape(length, HEADS, -1).transpose(1, 0, 2) for part in jnp.split(x @ layer["attend"], 3, axis=-1)
    )
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(WIDTH // HEADS)
    weights = rlx.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9), axis=-1)
    return (weights @ value).transpose(1, 0, 2).reshape(length, WIDTH) @ layer["mix"]


def logits(parameters, letters):
    """Scores of the next character after each one of a sequence."""
    x = parameters["letters"][letters] + parameters["places"][: letters.shape[0]]
    for layer in parameters["layers"]:
        x = x + attention(normalise(x, layer["before"]), layer)
        x = x + rlx.nn.gelu(normalise(x, layer["between"]) @ layer["up"]) @ layer["down"]
    return x @ parameters["letters"].T


def loss(parameters, batch):
    """The mean negative log probability of each next character; batch has shape (batch, CONTEXT + 1)."""
    scores = rlx.nn.log_softmax(rlx.vmap(logits, in_axes=(None, 0))(parameters, batch[:, :-1]))
    return -jnp.take_along_axis(scores, batch[:, 1:, None], axis=-1).mean()


def training_step(optimiser):
    """The jitted function from parameters, optimiser state and a batch to new parameters and state."""

    @rlx.jit
    def step(parameters, state, batch):
        value, gradient = rlx.value_and_grad(loss)(parameters, batch)
        updates, state = optimiser.update(gradient, state, parameters)
        return rlx.optim.apply_updates(parameters, updates), state, value

    return step


@rlx.jit
def write(parameters, key, start, temperature=0.7):
    """Continue `start` (CONTEXT characters) by 240 more, one at a time."""

    def one(window, key):
        letter = rlx.random.categorical(key, logits(parameters, window)[-1] / temperature)
        return jnp.concatenate([window[1:], letter[None].astype(window.dtype)]), letter

    return rlx.lax.scan(one, start, rlx.random.split(key, 240))[1]


def main(steps=STEPS):
    """Train for `steps` steps and print a sample; returns the loss, in nats a character."""
    alphabet, text = corpus()
    parameters = initial_parameters(rlx.random.key(0), len(alphabet))
    rate = rlx.optim.warmup_cosine_decay_schedule(0.0, PEAK_RATE, WARMUP, max(steps, WARMUP + 1), PEAK_RATE / 10)
    optimiser = rlx.optim.adam(rate, b2=0.99)
    state, step = optimiser.init(parameters), training_step(optimiser)
    losses, generator = [], np.random.default_rng(0)
    start = time.perf_counter()
    for count in range(steps):
        places = generator.integers(0, len(text) - CONTEXT - 1, BATCH)
        batch = text[places[:, None] + np.arange(CONTEXT + 1)]
        parameters, state, value = step(parameters, state, batch)
        losses.append(float(value))
        if count % 50 == 0 or count == steps - 1:
            seconds = time.perf_counter() - start
            print(f"step {count:4d}   loss {np.mean(losses[-20:]):.3f}   {seconds:5.1f} s", flush=True)
    letters = write(parameters, rlx.random.key(1), text[:CONTEXT])
    print("\n" + "".join(alphabet[i] for i in np.asarray(letters)) + "\n")
    final, bound = float(np.mean(losses[-20:])), 2.0 if steps >= STEPS else 3.2
    print(f"loss {final:.3f} nats a character")
    assert final < bound, final
    return final


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    main(parser.parse_args().steps)
