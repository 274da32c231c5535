"""Makes `expected.npz`: what others make of some audio. Needs torch and executorch, as tests/conformance does.

    python tests/speech/make_expected.py

Spectrograms are those of ExecuTorch's `WhisperAudioProcessor`. Transcripts are greedy ones of the eager float32 model
that tests/conformance/whisper.pte was traced from, on these spectrograms.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from executorch.extension.audio.mel_spectrogram import WhisperAudioProcessor

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "conformance")]

from models import MODELS, WHISPER  # noqa: E402
from spoken import CLIPS, END, NO_TIMES, PLAIN, START, clip  # noqa: E402


def main() -> None:
    arrays = {f"mel{mels}": spectrogram(clip(0, 5.3), mels, 30)[:, ::7] for mels in (80, 128)}
    torch.manual_seed(0)
    model = MODELS["whisper"].make().eval()
    for n in range(CLIPS):
        features = spectrogram(clip(n), WHISPER.mels, 1)
        arrays[f"ids{n}"] = np.array(greedy(model, torch.from_numpy(features)[None]))
        print(arrays[f"ids{n}"].tolist())
    np.savez_compressed(HERE / "expected.npz", **arrays)


def spectrogram(samples: np.ndarray, mels: int, seconds: int) -> np.ndarray:
    return WhisperAudioProcessor(feature_size=mels, chunk_length=seconds)(torch.from_numpy(samples))[0].numpy()


@torch.no_grad()
def greedy(model: torch.nn.Module, features: torch.Tensor) -> list[int]:
    """The likeliest plain token again and again, or the end, which cannot be the first."""
    heard = model.encoder(features)
    ids = [START, NO_TIMES]
    logits = model.text_decoder(torch.tensor([ids]), heard, torch.arange(2))[0, -1]
    while len(ids) < WHISPER.text_context:
        token = int(logits[: PLAIN + (len(ids) > 2)].argmax())
        if token == END:
            break
        ids.append(token)
        if len(ids) < WHISPER.text_context:
            logits = model.text_decoder(torch.tensor([[token]]), heard, torch.tensor([len(ids) - 1]))[0, -1]
    return ids[2:]


if __name__ == "__main__":
    main()
