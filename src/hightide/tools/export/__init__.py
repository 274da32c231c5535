"""A torch module as a `.pte` program, checked against eager at several live sizes: see `docs/guide/export.md`."""
