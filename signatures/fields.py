"""The types of output fields: they read leniently, ask strictly, and are plain values afterwards.

A field type is a subclass of `int`, `str` or `list`, so a value compares and computes like the builtin and is
written as plain JSON. Three things set it apart:

* **Reading.** `read` turns what a model wrote into a value through `salon.signatures.reading`, or raises
  `ValueError`, which DSPy's adapters report as an `AdapterParseError`. What had to be forced into the bounds
  (a 15 on a scale to 10, a text that was cut, ids that were left out) is `clamped`, to be counted.
* **Asking.** The JSON schema is a short one with hard bounds. DSPy shows it in prompts and sends it to
  providers that constrain their output by a schema.
* **Raw text.** DSPy repairs every text as JSON before a type sees it, unless the field is a plain `str` or an
  enum: `see [I3](x)` would arrive as `['I3']`, and a comment with brackets would be lost. The metaclass
  therefore answers to DSPy's test for enums, and DSPy's lookup of a member by its value becomes a call of
  `read`. Without it, the types still work through pydantic, and lose just that.
* **Prompts.** DSPy asks for "a valid Python X", with the type's `__name__` for X. It is the builtin's there
  ("a valid Python int"); `__qualname__` is the type's own.

New types are subclasses that set the bounds, at the top level of a module so that they can be pickled:

    class Headline(Text):
        limit = 70
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from pydantic_core import core_schema

from .reading import read_choice, read_ids, read_name, read_number, read_text, shorten

__all__ = [
    "Action",
    "BallotIds",
    "Choice",
    "Citations",
    "Confidence",
    "Ids",
    "Long",
    "Name",
    "Number",
    "OptionalLong",
    "OptionalName",
    "OptionalPassage",
    "OptionalShort",
    "Passage",
    "Percent",
    "Place",
    "Rating",
    "Short",
    "Text",
    "Title",
    "Want",
]


class _Everything:
    """A container that holds everything, so that DSPy looks up whatever the model wrote."""

    def __contains__(self, value: object) -> bool:
        return True


class _Raw(type):
    """Metaclass of the field types: gives `read` the model's raw text (see the module's docstring)."""

    __members__: ClassVar[_Everything] = _Everything()

    if not TYPE_CHECKING:

        @property
        def __class__(cls) -> type:
            return enum.EnumMeta

        @property
        def __name__(cls) -> str:
            return cls.builtin

    def __iter__(cls) -> Iterator[NoReturn]:
        return iter(())

    def __getitem__(cls, value: object) -> Any:
        return cls.read(value)  # type: ignore[attr-defined]


class _Field(metaclass=_Raw):
    """What all field types share: a reader, a schema and a plain form."""

    builtin: ClassVar[str] = "str"

    @classmethod
    def read(cls, value: object) -> Self:
        """Read what a model wrote.

        Args:
            value: A value of any type.

        Returns:
            A value of this type, within its bounds.

        Raises:
            ValueError: Nothing readable was there.
        """
        raise NotImplementedError

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The JSON schema that models are asked to follow."""
        raise NotImplementedError

    @classmethod
    def plain(cls, value: Any) -> Any:
        """The value as a builtin."""
        raise NotImplementedError

    @classmethod
    def _validate(cls, value: object) -> Self:
        return value if type(value) is cls else cls.read(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.plain_serializer_function_ser_schema(cls.plain)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        return cls.schema()


# ---------------------------------------------------------------- numbers


class Number(int, _Field):
    """A whole number on a scale; halves are rounded up."""

    builtin = "int"
    low: ClassVar[int]
    high: ClassVar[int]
    clamped: bool

    def __new__(cls, value: int, clamped: bool = False) -> Self:
        """Make a number that is within the scale already."""
        number = super().__new__(cls, value)
        number.clamped = clamped
        return number

    @classmethod
    def read(cls, value: object) -> Self:
        """Read a number; one outside the scale becomes its nearest end and is `clamped`."""
        number, clamped = read_number(value, cls.low, cls.high)
        return cls(int(number + 0.5 if number >= 0 else number - 0.5), clamped)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """An integer within the scale."""
        return {"type": "integer", "minimum": cls.low, "maximum": cls.high}

    @classmethod
    def plain(cls, value: Any) -> int:
        """The number as an `int`."""
        return int(value)


class Rating(Number):
    """How good something is, from 1 to 10."""

    low = 1
    high = 10


class Confidence(Number):
    """How sure, or how eager, from 0 to 10."""

    low = 0
    high = 10


class Percent(Number):
    """A share in percent, from 0 to 100."""

    low = 0
    high = 100


class Place(Number):
    """The number of an entry in a numbered list, from 1; the list's length is for the caller to hold it to."""

    low = 1
    high = 999


# ---------------------------------------------------------------- texts


class Text(str, _Field):
    """A text of at most `limit` characters; a longer one is cut at a word boundary and is `clamped`."""

    limit: ClassVar[int]
    optional: ClassVar[bool] = False
    clamped: bool

    def __new__(cls, value: str = "", clamped: bool = False) -> Self:
        """Make a text that is within the limit already."""
        text = super().__new__(cls, value)
        text.clamped = clamped
        return text

    @classmethod
    def read(cls, value: object) -> Self:
        """Read a text; where nothing is left it is refused, or "" if the type is optional."""
        return cls._bounded(read_text(value, _UNBOUNDED, allow_empty=cls.optional))

    @classmethod
    def _bounded(cls, text: str) -> Self:
        return cls(shorten(text, cls.limit), len(text) > cls.limit)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """A string of bounded length."""
        lengths = {"maxLength": cls.limit} if cls.optional else {"minLength": 1, "maxLength": cls.limit}
        return {"type": "string", **lengths}

    @classmethod
    def plain(cls, value: Any) -> str:
        """The text as a `str`."""
        return str(value)


_UNBOUNDED = 10**9


class Title(Text):
    """A title, on one line of at most 90 characters."""

    limit = 90

    @classmethod
    def read(cls, value: object) -> Self:
        """Read a title; line breaks become spaces."""
        return cls._bounded(" ".join(read_text(value, _UNBOUNDED).split()))


class Short(Text):
    """A sentence or two, at most 200 characters."""

    limit = 200


class OptionalShort(Short):
    """A sentence or two, or ""."""

    optional = True


class Passage(Text):
    """A paragraph, at most 600 characters."""

    limit = 600


class OptionalPassage(Passage):
    """A paragraph, or ""."""

    optional = True


class Long(Text):
    """Several paragraphs, at most 1200 characters."""

    limit = 1200


class OptionalLong(Long):
    """Several paragraphs, or ""."""

    optional = True


class Name(Text):
    """A name, on one line of at most 60 characters."""

    limit = 60

    @classmethod
    def read(cls, value: object) -> Self:
        """Read a name: the first line of a text, or the first of a list."""
        return cls._bounded(read_name(value, allow_empty=cls.optional))


class OptionalName(Name):
    """A name or "": what models write for nobody (none, nobody, n/a, null) is ""."""

    optional = True

    @classmethod
    def read(cls, value: object) -> Self:
        """Read a name, or "" where nobody is named."""
        name = super().read(value)
        return cls() if " ".join(name.strip("-—–.()[]<> ").casefold().split()) in _NOBODY else name


_NOBODY = frozenset(
    {"", "none", "nobody", "no one", "no-one", "noone", "nil", "null", "n/a", "na", "nothing", "no"}
    | {"no nomination", "no nominee", "no persona", "not applicable", "empty", "unknown", "anyone", "anybody"}
)


# ---------------------------------------------------------------- choices and ids


class Choice(str, _Field):
    """One of a few options."""

    options: ClassVar[tuple[str, ...]]
    clamped: bool = False

    @classmethod
    def read(cls, value: object) -> Self:
        """Read the one option that is named."""
        return cls(read_choice(value, cls.options))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """An enumeration of the options."""
        return {"type": "string", "enum": list(cls.options)}

    @classmethod
    def plain(cls, value: Any) -> str:
        """The option as a `str`."""
        return str(value)


class Want(Choice):
    """What a participant would do with the floor."""

    options = ("comment", "idea", "pass")


class Action(Choice):
    """What a facilitator does."""

    options = ("no_action", "invite", "redirect", "challenge", "move_on")


class Ids(list[str], _Field):
    """Ids of entities in the order they were written, at most `most`; `dropped` counts those left out."""

    builtin = "list[str]"
    kinds: ClassVar[str]
    bare: ClassVar[str] = ""
    most: ClassVar[int]
    dropped: int

    def __init__(self, ids: Iterable[str] = (), dropped: int = 0) -> None:
        super().__init__(ids)
        self.dropped = dropped

    @property
    def clamped(self) -> bool:
        """Whether ids were left out, as too many or of the wrong kind."""
        return self.dropped > 0

    @classmethod
    def read(cls, value: object) -> Self:
        """Read ids from a list or prose; nothing readable is an empty list, never an error."""
        found = read_ids(value, cls.bare)
        kept = [one for one in found if one[0] in cls.kinds][: cls.most]
        return cls(kept, len(found) - len(kept))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """An array of ids, bounded in length and in the form of an id."""
        kind = cls.kinds if len(cls.kinds) == 1 else f"[{cls.kinds}]"
        items = {"type": "string", "pattern": f"^{kind}[0-9]{{1,5}}$"}
        return {"type": "array", "items": items, "maxItems": cls.most}

    @classmethod
    def plain(cls, value: Any) -> list[str]:
        """The ids as a `list` of `str`."""
        return list(value)


class Citations(Ids):
    """Ids of what a contribution builds on, at most 8."""

    kinds = "TCIVFUS"
    most = 8


class BallotIds(Ids):
    """Ids of the ideas voted for, at most 20, with repetitions: spoiled votes are for the caller to find."""

    kinds = "I"
    bare = "I"
    most = 20
