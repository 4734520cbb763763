"""Expressions and properties for comparing filters: the odd ones by hand, the others by chance."""

from random import Random

NAMES = ("a", "b", "c", "_x", "$y", "TAGS", "KEYS", "A")

VALUES = (
    "0", "1", "5", "10", "-1", "-5", "+5", "007", "2147483647", "2147483648", "-2147483648",
    "9223372036854775807", "9223372036854775808", "1.0", "5.5", "-5.5", ".5", "5.", "1e3", "1E-3",
    "0.0", "-0.0", "NaN", "-NaN", "Infinity", "-Infinity", "infinity", "inf", "1f", "1.5d", "5L",
    "0x10", "0x1p3", "0x.8p1", "1_000", " 5", "5 ", " 5.5 ", "5,5", "\u0665", "\uff15", "abc",
    "ABC", "a'b", "TagA", "TagB", "true", "TRUE", "True", "false", "null", "NULL", "x", "xy",
    "价格", "e", "-", "+", "1e400", "-1e400", "1e-400", "99999999999999999999",
    "00000000000000000000005", "\U0001d7d3", "+-5", "\x1f5", "5\u00a0", "0X1.8p-1f", "1e5D", "1.5e",
    "+NaN", "Infinityf", "\u09eb", "-\u096b", "1\x00", "1" * 5000, "0" * 5000 + "5", "a\x01b",
    "1e99999999999", "0x1p99999999999", "0x.p3", "\U0001f600",
)  # fmt: skip

ODD = (
    "", " ", "a", "NOT a", "NOT NOT a", "5", "'x'", "TRUE", "FALSE", "NULL", "NOT TRUE",
    "NOT NULL", "-a", "+a", "-5", "a = 1 garbage", "a = 1 garbage @@@", "a = 1 @", "a like 'x%'",
    "a = 007", "a = 00", "a = 0L", "a = 5l", "a > 5L", "a = 0.0", "a = 1e400", "a = 1e-400",
    "a = 5.", "a > .5", "a > 5.E1", "a > 5E1", "a = 9223372036854775807",
    "a = 9223372036854775808", "a = -9223372036854775807", "a = -9223372036854775808",
    "a >= -2147483648", "a >= 2147483648", "a = --1", "a = --1\n", "a --x\n= 1", "a = - -1",
    "a = -(-1)", "a = +1", "a = ++1", "a = +-1", "a /* x */ = 1", "a /* * ** /* */ = 1",
    "a /* = 1", "a = 1 /*", "a = 1 --", "a = 1 -- x", "a IN ()", "a IN (1)", "a IN ('x'",
    "a IN ('x',)", "a IN ('x', 'y')", "a NOT IN ('x')", "(a) IN ('x')", "NOT a IN ('x')",
    "NOT (a IN ('x'))", "'x' IN ('x')", "-a IN ('x')", "a IN ('x') IN ('y')",
    "a IN ('1','2','3','4','5','6','x')", "a IN ('it''s', '''')", "a BETWEEN 3 AND 1",
    "a BETWEEN 1 AND 3", "a BETWEEN -3 AND -5", "a NOT BETWEEN 3 AND 1", "a BETWEEN 1 AND 1",
    "a BETWEEN 1.5 AND 1", "a BETWEEN 1 AND 1.5", "a BETWEEN b AND c", "a BETWEEN 'a' AND 'b'",
    "a BETWEEN NULL AND 5", "a BETWEEN 1 AND NULL", "a BETWEEN TRUE AND 5", "5 BETWEEN 1 AND 10",
    "5 BETWEEN a AND 10", "'5' BETWEEN 1 AND 10", "a BETWEEN 1 AND 5 AND b = 'x'",
    "NOT a BETWEEN 1 AND 5", "-a BETWEEN 1 AND 5", "a BETWEEN 1 OR 5", "a BETWEEN 1", "a > 'b'",
    "'a' > 5", "a > NULL", "a = NULL", "NULL = a", "NULL = NULL", "a <> NULL", "a > TRUE",
    "a > b", "a >= b", "a < b", "a <= b", "a = b", "a <> b", "a = a", "a <> a", "A = a", "5 > a",
    "5.5 < a", "-5 < a", "5 = a", "'x' = a", "'x' <> a", "NOT ('x' = a)", "TRUE = a", "FALSE = a",
    "a = TRUE", "a = FALSE", "a <> TRUE", "TRUE = TRUE", "TRUE = FALSE", "TRUE = 5", "5 = TRUE",
    "'true' = TRUE", "TRUE = 'true'", "5 = 5", "5 = 5.0", "5 = '5'", "'5' = 5", "'x' = 'x'",
    "5 <> 6", "1 > 0.5", "2147483648 = 2147483648", "9007199254740993 = 9007199254740992.0",
    "a = (b = 1)", "(a = 1) = (b = 1)", "(a = 1) = TRUE", "(a = 1) = b", "(a = 1) > 5",
    "a = NOT b", "a > 1 > 2", "a = b = c", "a = 'x' = TRUE", "a = 'x' = 'true'", "a IS NULL",
    "a IS NOT NULL", "a IS NULL IS NULL", "a IS", "a IS NOT", "a IS x", "a IS NOT x", "5 IS NULL",
    "NULL IS NULL", "NULL IS NOT NULL", "-a IS NULL", "-5 IS NULL", "-(a > 5) IS NULL",
    "-TRUE IS NULL", "-'x' IS NULL", "(a > 5) IS NULL", "(a > 5) IS NOT NULL", "a NOT foo",
    "a NOT", "NOT", "AND", "a AND", "a OR b", "a AND b", "a > 1 AND b", "TRUE OR a", "a OR TRUE",
    "FALSE AND a", "NULL OR TRUE", "NULL AND FALSE", "a CONTAINS 'x'", "a NOT CONTAINS 'x'",
    "a CONTAINS ''", "a NOT CONTAINS ''", "5 CONTAINS '5'", "5 NOT CONTAINS '6'", "a CONTAINS b",
    "a STARTSWITH 'T'", "a NOT STARTSWITH 'T'", "a ENDSWITH 'A'", "a NOT ENDSWITH 'A'",
    "NOT a CONTAINS 'x'", "'xyz' CONTAINS 'y'", "a CONTAINS 'x' CONTAINS 'y'",
    "NULL CONTAINS 'x'", "-a CONTAINS 'x'", "a contains 'x' or a startswith 'T'", "a CONTAINS 5",
    "contains = 'x'", "not_ = 'x'", "NOTa = 'x'", "in1 = 'x'", "betWeen", "a = 'x", "a = ''",
    "a <> ''", "a = ''''", "a = 'a''b'", "a = '价格'", "价格 = 'x'", "a != 5", "a == 5",
    'a = "x"', "a.b = 5", "a-b = 5", "a + 1 = 2", "a * 2 = 4", "(a = 1", "a = 1)", "((a = 1))",
    "()", "(", ")", "a = (1)", "a = ('x')", "a = 1 AND NOT b = 2", "a = 1 AND NOT (b = 2)",
    "NOT a = 1", "NOT (a = 1)", "NOT a = TRUE", "NOT 5", "NOT 'x'", "NOT -a", "NOT (NOT a)",
    "a > 5 OR a > 'x'", "a > 5 or b > 5", "b > 5 OR a > 5", "a > 5 AND b > 5",
    "NOT (a > 5 OR b > 5)", "a > 5.5", "a >= 5.0", "a = 5.0", "a < -5.5", "a = 1.0",
    "a > 5 NOT IN ('x')", "(a > 5) CONTAINS 'x'", "a = 1;", "a = 1 ; b", "a ,", "a = 1\x00",
    "a\t=\n1\r\f", "\u017f = 1", "a I\u017f NULL", "a \u0131s NULL",
    "KEYS = 'x' AND TAGS IN ('TagA')", "$y = 1", "_x = 1", "a = $y", "1 = 1 AND a", "a AND 1",
    "1 AND a", "a OR 'x'", "a = 1 AND 5", "a = 1 OR -5", "a = -0", "a >= -0", "0 = -0", "5E = a",
    "5.5.5 = a", "a = 1e", "a = 0x10", "a = 1d", "a = 1.5f", "a > 5 > 6 garbage", "a=1OR b=2",
    "a=5LOR b=1", "a>5.AND b>5", "a>5eAND b>5", "a = 'x'AND b='y'", "a IN('x')AND b=1", "a=1--\r",
    "--\ra=1", "/***/a=1", "/*/a=1", "/*/*/a=1", "a IS/**/NULL", "a = 1 \x00", "a = 1 x \x00",
    "a = 1 0.0", "a = 1 99999999999999999999999", "a = 1 'unclosed", "a BETWEEN (5) AND 1",
    "a BETWEEN 5 AND +1", "a BETWEEN NOT b AND 1", "a between 1 and 2 between 3 and 4",
    "a IS NULL = b", "a CONTAINS 'x' = TRUE", "a IN ('x') IS NULL", "'' CONTAINS ''",
    "+a IN ('x')", "-(a=1) = TRUE", "NOT -(a=1)", "a > -'5'", "a > -b", "a IN ('\U0001f600')",
    "\ufeffa=1", "a\u2003=1", "\x0ba=1", "\uff41 = 1", "a< >5", "5>a<5", "a NOTIN ('x')",
)  # fmt: skip

_LITERALS = (
    "0", "1", "5", "10", "-5", "5L", "2147483647", "2147483648", "-2147483648", "5.5", ".5", "1e3",
    "-5.5", "'x'", "'abc'", "'5'", "'TagA'", "''", "TRUE", "FALSE", "NULL", "9223372036854775807",
)  # fmt: skip
_SEARCHES = ("CONTAINS", "startswith", "EndsWith")
_ITEMS = ("'x'", "'a'", "'T'", "''", "'5'", "'TagA'", "'a''b'", "'10'", "'true'")
_TOKENS = (
    "a", "b", "A", "$y", "TAGS", "and", "OR", "not", "BETWEEN", "in", "IS", "NULL", "TRUE", "false",
    "CONTAINS", "startswith", "=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-", "'x'", "''",
    "'5'", "5", "0", "1", "5L", "0l", "5.5", ".5", "5.", "2147483648", "--c\n", "/**/", "''''",
)  # fmt: skip
_CHARACTERS = "ab5 0.eE+-'\"()<>=!,/*\n\rLl$_@\x00\ufeff\u00a0\u2028\u4ef7\U0001f600\x0b\x0c#;|&%\\"
_JUNK = ("@", "garbage", ")", "(", "NOT", "AND", "IN", "'", "--", "/*", ",", "=", "5", "!", ".")


def messages(random: Random, count: int) -> list[dict[str, str]]:
    """Properties of messages: few names, so that expressions meet them."""
    made: list[dict[str, str]] = [{}]
    while len(made) < count:
        names = random.sample(NAMES, random.randint(1, 5))
        made.append({name: random.choice(VALUES) for name in names})
    return made


def expressions(random: Random, count: int) -> list[str]:
    made = list(ODD)
    while len(made) < count:
        text = _condition(random, random.randint(0, 4))
        chance = random.random()
        if chance < 0.1:
            text = _soup(random)
        elif chance < 0.2:
            text = _mangled(random)
        elif chance < 0.35:
            text = _spoilt(random, text)
        made.append(text)
    return made


def _soup(random: Random) -> str:
    """Words in any order; some of it means something."""
    count = random.randint(1, 9)
    return random.choice((" ", "", "\n")).join(random.choice(_TOKENS) for _ in range(count))


def _mangled(random: Random) -> str:
    """One of the odd ones, odder."""
    text = random.choice(ODD)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(text))
        text = text[:at] + random.choice(_CHARACTERS) + text[at:]
    return text


def _condition(random: Random, depth: int) -> str:
    if depth <= 0:
        return _comparison(random, depth)
    first, second = (_condition(random, depth - 1 - random.randint(0, 1)) for _ in range(2))
    forms = f"{first} AND {second}", f"{first} or {second}", f"NOT {first}", f"({first})"
    return random.choice((*forms, f"NOT ({first})", _comparison(random, depth)))


def _comparison(random: Random, depth: int) -> str:
    left, right = _operand(random, depth), _operand(random, depth)
    no, search = random.choice(("", "NOT ")), random.choice(_SEARCHES)
    items = ",".join(random.choice(_ITEMS) for _ in range(random.randint(1, 6)))
    forms = (
        *(f"{left} {sign} {right}" for sign in (">", ">=", "<", "<=", "=", "<>", "=", "<>")),
        f"{left} {no}BETWEEN {right} AND {_operand(random, depth)}",
        f"{random.choice(NAMES)} {no}in ({items})",
        f"{left} {no}{search} {random.choice(_ITEMS)}",
        f"{left} IS {no}NULL",
    )
    return random.choice(forms)


def _operand(random: Random, depth: int) -> str:
    chance = random.random()
    if chance < 0.6:
        return random.choice(NAMES)
    if chance < 0.9:
        return random.choice(_LITERALS)
    sign = random.choice(("-", "+", ""))
    return (
        f"{sign}({_condition(random, depth - 2)})" if depth > 1 else f"{sign}{random.choice(NAMES)}"
    )


def _spoilt(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    if random.random() < 0.5:
        return f"{text[:at]} {random.choice(_JUNK)} {text[at:]}"
    return text[:at] + text[at + random.randint(1, 3) :]
