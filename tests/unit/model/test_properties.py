from bolide.model.properties import RESERVED_NAMES, PropertyName


def test_no_two_names_are_the_same_property() -> None:
    values = [value for name, value in vars(PropertyName).items() if name.isupper()]
    assert len(values) == len(set(values))


def test_reserved_names_are_those_of_java() -> None:
    ours = {name for name in RESERVED_NAMES if name.startswith("BOLIDE_")}
    ours.add(PropertyName.DEDUP_KEY)
    assert ours >= {PropertyName.EXPIRES_AT, PropertyName.CRON, PropertyName.CRON_ZONE}
    assert len(RESERVED_NAMES - ours) == 52  # of the 54 in STRING_HASH_SET; two are of light topics
    assert {"TAGS", "KEYS", "UNIQ_KEY", "1ST_POP_TIME", "__CRC32#"} <= RESERVED_NAMES
    assert "__SHARDINGKEY" not in RESERVED_NAMES
