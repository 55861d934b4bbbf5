"""Accidental robustness (chapter 3 of the thesis): many networks trained at once, judged one by one."""
