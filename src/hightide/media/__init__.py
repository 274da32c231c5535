"""Images and audio as arrays that models take. May know `formats`; no model, no graph."""
