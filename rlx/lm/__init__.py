"""Language models: decoders of the common families as pure functions of parameters, and texts from them.

A front over rlx's public functions, which `import rlx` does not load.
"""

from rlx.lm.adapters import apply_lora, load_lora, merge_lora, new_lora, stack_lora
from rlx.lm.caches import Cache, PagePool, new_cache
from rlx.lm.chat import chat_text
from rlx.lm.config import DecoderConfig, EncoderConfig, Experts, Rope
from rlx.lm.converting import repack_gguf, save_gguf
from rlx.lm.decoder import Steps, forward, readout, states
from rlx.lm.encoder import Encoder, encode, load_encoder
from rlx.lm.generation import Likely, Model
from rlx.lm.grammar import Grammar
from rlx.lm.layers import balance_loss
from rlx.lm.loading import load
from rlx.lm.measures import embed_texts, perplexity
from rlx.lm.prompt_cache import PromptCache
from rlx.lm.recurrent import gated_delta_rule, gru, lstm, selective_scan, state_space_dual
from rlx.lm.sampling import Sampling, processed
from rlx.lm.scheduler import Progress, Scheduler
from rlx.lm.speculation import lookup_draft, model_draft, speculate, speculative_accept
from rlx.lm.stopping import StopTexts
from rlx.lm.tokens import TextTokenizer, Utf8
from rlx.lm.tools import answer_message
from rlx.lm.weights import random_parameters
from rlx.offered_names import offer_names

__all__ = [
    "Cache",
    "DecoderConfig",
    "Encoder",
    "EncoderConfig",
    "Experts",
    "Grammar",
    "Likely",
    "Model",
    "PagePool",
    "Progress",
    "PromptCache",
    "Rope",
    "Sampling",
    "Scheduler",
    "Steps",
    "StopTexts",
    "TextTokenizer",
    "Utf8",
    "answer_message",
    "apply_lora",
    "balance_loss",
    "chat_text",
    "embed_texts",
    "encode",
    "forward",
    "gated_delta_rule",
    "gru",
    "load",
    "load_encoder",
    "load_lora",
    "lookup_draft",
    "lstm",
    "merge_lora",
    "model_draft",
    "new_cache",
    "new_lora",
    "perplexity",
    "processed",
    "random_parameters",
    "readout",
    "repack_gguf",
    "save_gguf",
    "selective_scan",
    "speculate",
    "speculative_accept",
    "stack_lora",
    "state_space_dual",
    "states",
]

offer_names(globals())
