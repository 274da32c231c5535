"""What looks at programs from outside: inspect, verify, export, profile, doctor, tune, bench. One package each.

May know everything but `cli`; nothing below imports a tool.
"""
