"""The grammars of calls in text, as data: a handful of shapes, and for each the words that a dialect fills it with.

A tag is `head` + its name + `tail`, its end `foot` + its name + `tail`. Nothing here reads any text.
"""

from typing import Literal

import msgspec


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """How a call is written; `markers` are the words that may begin one."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return ()


class JsonBody(Grammar, frozen=True, kw_only=True):
    """The `opener` words, then an object or a list that names tool and arguments, then a closer.

    `maybe` is a word that may stand before the opener, `first` are the characters with which the value may begin,
    `separators` what stands between several values. With `needs_closer` text may not follow where the closer is
    missing. In a `keyed` body the tool's name is the key. `is_echoed` says that the body may come once more.
    """

    opener: tuple[str, ...]
    maybe: str = ""
    first: str = "{["
    closers: tuple[str, ...] = ()
    separators: str = ""
    needs_closer: bool = False
    is_fenced: bool = False
    is_keyed: bool = False
    is_echoed: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return tuple(filter(None, (self.maybe, self.opener[0])))


class NamedJson(Grammar, frozen=True, kw_only=True):
    """The opener, the tool's name, a word that ends it, then the arguments as an object, then a closer.

    `lead` stands between opener and name, `id_end` ends an id before the name, `id_mark` begins one behind it. With
    `may_be_code` name and arguments may each stand in inline code, the arguments in a fence too.
    """

    opener: str
    wrappers: tuple[str, ...] = ()
    lead: str = ""
    id_end: str = ""
    id_mark: str = ""
    name_ends: tuple[str, ...] = ()
    args_mark: str = ""
    closers: tuple[str, ...] = ()
    needs_closer: bool = False
    is_fenced: bool = False
    may_be_code: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return (*self.wrappers, self.opener)


class Tagged(Grammar, frozen=True, kw_only=True):
    """A tag that names the tool, in it one tag for each parameter with the value as text.

    Without `name_attr` a name follows the tag's own name behind `=`. `wraps` are the tags around calls, `leads` words
    that may stand before a call, `ends` words that may stand behind it. `type_attr` is the attribute that says how a
    value is written. `trims` takes one line feed from each end of a value.
    """

    head: str = "<"
    foot: str = "</"
    tail: str = ">"
    wraps: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    call: str = "function"
    param: str = "parameter"
    name_attr: str = ""
    key_attr: str = ""
    type_attr: str = ""
    is_bare: bool = True
    trims: bool = False
    has_cdata: bool = False
    has_json: bool = False
    has_entities: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        wraps = tuple(self.tag(wrap) for wrap in self.wraps)
        if not self.is_bare:
            return (*wraps, *self.leads)
        start = self.head + self.call
        glued = (f"{start} ", f"{start}\u0120", f"{start}{self.name_attr}=") if self.name_attr else (f"{start}=",)
        return (*wraps, *self.leads, *glued)

    def tag(self, name: str) -> str:
        """Return a tag."""
        return f"{self.head}{name}{self.tail}"

    def end(self, name: str) -> str:
        """Return the end of a tag."""
        return f"{self.foot}{name}{self.tail}"


class Pairs(Grammar, frozen=True, kw_only=True):
    """A tag with the tool's name as text, then keys and values in tags of their own; all tags may share a suffix."""

    name_end: Literal["", "\n", "sep"] = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        many = ("<tool_calls>", "<tool_calls:", "<tool_call:") if self.name_end == "sep" else ()
        return ("<tool_call>", *many)


class Elements(Grammar, frozen=True, kw_only=True):
    """Tags whose names are those of the parameters, perhaps nested.

    With a `sentinel` before every tag the tool is named by an attribute; without one it is named by its tag.
    """

    sentinel: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return (f"{self.sentinel}<",) if self.sentinel else ()


class Pythonic(Grammar, frozen=True, kw_only=True):
    """Calls as Python writes them: in a list, or one in a line."""

    opener: str = ""
    closer: str = ""
    is_list: bool = True
    is_echoed: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return (self.opener,) if self.opener else ()


class Braces(Grammar, frozen=True, kw_only=True):
    """`call:` and the name, then keys and values in braces; text stands between two of `quote`."""

    opener: str
    quote: str
    closer: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return (self.opener,)


class Framed(Grammar, frozen=True, kw_only=True):
    """Messages with a header of channel and recipient: a recipient that is a tool makes a call of the body."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Return the words of which one stands at the start."""
        return ("<|start|>", "<|channel|>")


class Whole(Grammar, frozen=True, kw_only=True):
    """A message that is nothing but the call: JSON, JSON in a fence, or a Python list."""

    kind: Literal["json", "fence", "python"]


AnyGrammar = JsonBody | NamedJson | Tagged | Pairs | Elements | Pythonic | Braces | Framed | Whole
Tier = Literal["native", "marked", "markerless"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A stray spelling of calls in text.

    `models` are parts of the names of the models it is native to. `at_line` dialects begin only at the start of a
    line. Those without a marker of their own are off unless they are asked for.
    """

    id: str
    grammar: AnyGrammar
    models: tuple[str, ...] = ()
    at_line: bool = False
    is_markerless: bool = False

    def tier(self, model: str) -> Tier:
        """Return the tier of a call in this dialect from this model."""
        if self.is_markerless:
            return "markerless"
        name = model.lower()
        return "native" if any(part in name for part in self.models) else "marked"
