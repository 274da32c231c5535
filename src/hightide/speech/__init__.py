"""Speech to text: samples, spectrograms, Whisper programs. Built on `pte` and on the tokenizer of `llm`."""
