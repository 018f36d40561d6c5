"""Language models: decoders of the common families as pure functions of parameters, and texts from them.

A front over rlx's public functions, which `import rlx` does not load.
"""

from rlx.lm.chat import chat_text
from rlx.lm.config import DecoderConfig, Experts, Rope
from rlx.lm.decoder import Cache, Steps, forward, new_cache
from rlx.lm.generation import Model, load
from rlx.lm.sampling import Sampling, processed
from rlx.lm.tokens import TextTokenizer, Utf8
from rlx.lm.weights import random_parameters

__all__ = [
    "Cache",
    "DecoderConfig",
    "Experts",
    "Model",
    "Rope",
    "Sampling",
    "Steps",
    "TextTokenizer",
    "Utf8",
    "chat_text",
    "forward",
    "load",
    "new_cache",
    "processed",
    "random_parameters",
]
