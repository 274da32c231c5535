"""Looking inside a program: its graph with live dims as formulas, its memory, its plan, its picture."""
