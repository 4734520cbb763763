"""Message properties as one string: name 0x01 value 0x02, repeated (`MessageDecoder`).

RocketMQ 5.x ends every pair with 0x02; 4.9.2 to 4.9.8 omit the last one. Bolide writes the first
form and reads both. Readers drop a pair without a name or a value, so an empty value is lost.
"""

from collections.abc import Mapping

NAME_END = "\x01"
PAIR_END = "\x02"


def encode_properties(properties: Mapping[str, str]) -> str:
    """Raises ValueError if a name or a value contains a separator."""
    if not properties:
        return ""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    pairs = len(properties)
    if text.count(PAIR_END) != pairs or text.count(NAME_END) != pairs:
        _refuse_separators(properties)
    return text


def decode_properties(text: str) -> dict[str, str]:
    """Decode pairs; of two with the same name the later wins, malformed pairs are ignored."""
    properties = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def _refuse_separators(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if NAME_END in name or PAIR_END in name:
            raise ValueError(f"property name {name!r} holds a separator (0x01 or 0x02)")
        if PAIR_END in value:  # 0x01 is valid in a value: only the first one separates
            raise ValueError(f"value {value!r} of property {name!r} holds a separator (0x02)")
