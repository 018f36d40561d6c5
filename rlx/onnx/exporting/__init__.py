"""Functions as ONNX models."""

from __future__ import annotations

from rlx.onnx.exporting.model import export

__all__ = ["export"]
