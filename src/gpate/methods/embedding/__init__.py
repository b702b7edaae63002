"""Images from noisy class means of public features: the default for images."""

from gpate.methods.embedding.method import EmbeddingMethod, embed
from gpate.methods.embedding.settings import Embedding

__all__ = ["Embedding", "EmbeddingMethod", "embed"]
