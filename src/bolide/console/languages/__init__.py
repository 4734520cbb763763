"""Texts of the pages: English in the code, Chinese in `zh/*.json`, one file for each page.

`t("Create topic")` gives the text in the language of a page; `{}` fields are filled in by name.
"""

import json
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from importlib.resources import files

Translate = Callable[..., str]


class Language(StrEnum):
    """The languages of the pages, by their codes in HTML."""

    ENGLISH = "en-US"
    CHINESE = "zh-CN"

    @property
    def own_name(self) -> str:
        return {"en-US": "English", "zh-CN": "中文"}[self.value]


def preferred_language(chosen: str | None, accepted: str) -> Language:
    """The language that was chosen, else the first one that the browser asks for."""
    if chosen in set(Language):
        return Language(chosen)
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().lower()
        if code.startswith("zh"):
            return Language.CHINESE
        if code.startswith("en"):
            return Language.ENGLISH
    return Language.ENGLISH


def translator(language: Language) -> Translate:
    """The function that pages call `t`."""
    texts = chinese_texts() if language is Language.CHINESE else {}

    def t(text: str, **values: object) -> str:
        translated = texts.get(text, text)
        return translated.format(**values) if values else translated

    return t


@cache
def chinese_texts() -> dict[str, str]:
    """English texts with their Chinese ones, of all pages."""
    texts: dict[str, str] = {}
    for file in sorted(files(__name__).joinpath("zh").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".json"):
            texts |= json.loads(file.read_text("utf-8"))
    return texts
