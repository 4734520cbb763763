"""Fuzzing: one list of targets, run by Hypothesis in the suite and by atheris in `make fuzz`."""
