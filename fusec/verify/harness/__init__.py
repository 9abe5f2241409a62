"""Proves that a vLLM model package computes what its transformers original computes.

The folder stands alone: it imports only the standard library, numpy, torch, transformers, safetensors and vllm, and
is copied as it is into the packages it proves. :func:`prove` is the way in; see :mod:`.checks`.
"""

from .checks import Failure, Outcome, Request, Row, Session, prove, session

__all__ = ["Failure", "Outcome", "Request", "Row", "Session", "prove", "session"]
