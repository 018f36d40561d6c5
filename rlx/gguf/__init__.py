"""GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): models with packed weights and a tokenizer.

Reading maps the file; tensors are decoded on access by compiled functions, bit for bit as by the format's
reference implementation. The rest of rlx does not depend on this package, and `import rlx` does not load it.
"""

from rlx.gguf.blocks import dequantize, quantize
from rlx.gguf.describe import describe
from rlx.gguf.file import GGUFFile, GGUFTensor
from rlx.gguf.header import Metadata
from rlx.gguf.tokenizer import TOKEN_TYPES, Tokenizer
from rlx.gguf.types import Layout, StorageType, layout
from rlx.gguf.write import GGUFWriter
from rlx.offered_names import offer_names

__all__ = [
    "GGUFFile",
    "GGUFTensor",
    "GGUFWriter",
    "Layout",
    "Metadata",
    "StorageType",
    "TOKEN_TYPES",
    "Tokenizer",
    "dequantize",
    "describe",
    "layout",
    "quantize",
]

offer_names(globals())
