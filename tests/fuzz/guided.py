"""One target under atheris; `tests.fuzz` starts it as a process of its own.

    python -m tests.fuzz.guided TARGET CORPUS [option of libFuzzer …]

Code in plain Python is instrumented for coverage. The compiled kernel is not; its twins in plain
Python, which the same targets call, lead the fuzzer through it.
"""

import logging
import sys
from itertools import islice

import atheris

with atheris.instrument_imports(include=["bolide"], enable_loader_override=False):
    from bolide.kernel import COMPILED
    from tests.fuzz.targets import BY_NAME

    target = BY_NAME[sys.argv[1]]
    for each in islice(target.seeds(), 3):
        target(each)  # what is imported late must be instrumented too


def main(_: str, corpus: str, *options: str) -> None:
    if not COMPILED:
        raise SystemExit("the compiled kernel is missing: see what the build printed")
    logging.getLogger("bolide").addHandler(logging.NullHandler())
    logging.getLogger("bolide").propagate = False
    atheris.Setup([sys.argv[0], corpus, *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
