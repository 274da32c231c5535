"""Looking inside a program: what varies in it, its live dims as formulas, its memory, its plan, its picture."""
