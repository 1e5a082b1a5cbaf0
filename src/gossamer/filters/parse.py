"""From a filter's text to its tree.

The language is the part of Spark's grammar for boolean expressions that both engines agree on:

    filter     = term { OR term }
    term       = factor { AND factor }
    factor     = { NOT | ! } ( predicate | "(" filter ")" )
    predicate  = operand ( compare operand
                         | [NOT] BETWEEN operand AND operand
                         | [NOT] IN "(" operand { "," operand } ")"
                         | [NOT] LIKE string [ESCAPE string]
                         | [NOT] (RLIKE | REGEXP) string
                         | IS [NOT] NULL )
               | operand
    operand    = attribute | literal | "(" operand ")"

Gossamer has a reader of its own, and not a general SQL parser
(docs/decisions/0012-own-filter-reader.md). It points at the place of an error. It agrees with
Spark's grammar by construction, and the tests hold it to that. It uses no recursion, so no text
from a peer reaches Python's recursion limit: parentheses are frames on a list. NOT is a parity that
is handed to the predicates, so the tree is in normal form as soon as it is built.
"""

from __future__ import annotations

from typing import NoReturn

from msgspec import Struct

from gossamer.filters import fit, pattern, tree
from gossamer.filters.fit import Literal, UnlikeError
from gossamer.filters.lex import Token, tokens
from gossamer.filters.model import CONJUNCTIONS_MAX, DEPTH_MAX, FilterError, printable
from gossamer.filters.rows import encodable
from gossamer.filters.schema import Schema, Type, quote
from gossamer.filters.tree import FALSE, Const, Node, Null

_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">=", "<=>"))
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TYPED = frozenset(("DATE", "TIMESTAMP", "X"))


class Operand(Struct, frozen=True):
    """An attribute by its position, or a literal, with its place in the text."""

    what: int | Literal
    start: int
    end: int


class _Frame:
    """The contents of one pair of parentheses."""

    def __init__(self, negated: bool, start: int, around: int) -> None:
        self.negated = negated
        self.start = start
        # The number of NOTs around the parentheses.
        self.around = around
        # An OR of ANDs.
        self.terms: list[list[Node]] = [[]]
        # Set while the frame holds one operand and nothing else.
        self.operand: Operand | None = None
        # The number of NOTs before the next factor.
        self.nots = 0

    @property
    def flipped(self) -> bool:
        return self.negated != bool(self.nots % 2)


def parse(text: str, schema: Schema) -> Node:
    """The tree of `text` over `schema`. A FilterError says why a text is refused."""
    return _Parser(text, schema).parse()


class _Parser:
    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.tokens = tokens(text)
        self.place = 0

    # The current token.

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def _is(self, value: str) -> bool:
        """Whether the current token is this reserved word or operator."""
        token = self.tokens[self.place]
        return token.value == value and token.kind in ("word", "op")

    def _take(self, value: str) -> bool:
        if self._is(value):
            self.place += 1
            return True
        return False

    def _expect(self, value: str, after: str) -> None:
        if not self._take(value):
            self._fail(f"{value} expected {after}")

    def _fail(self, message: str, start: int | None = None, end: int | None = None) -> NoReturn:
        token = self.token
        if start is None:
            start, end = token.start, token.end
        raise FilterError(message, self.text, start, end)

    # Boolean structure.

    def parse(self) -> Node:
        if self.token.kind == "end":
            return tree.TRUE
        frames = [_Frame(False, 0, 0)]
        while True:
            frame = frames[-1]
            while self._is("NOT") or self._is("!"):
                frame.nots += 1
                if frame.around + frame.nots > DEPTH_MAX:
                    self._fail(f"NOTs are at most {DEPTH_MAX} deep")
                self.place += 1
            if self._is("("):
                if len(frames) > DEPTH_MAX:
                    self._fail(f"parentheses are at most {DEPTH_MAX} deep")
                frames.append(_Frame(frame.flipped, self.token.start, frame.around + frame.nots))
                self.place += 1
                continue
            self._factor(frame, self._operand())
            while not (self._is("AND") or self._is("OR")):
                if self.token.kind == "end":
                    if len(frames) > 1:
                        self._fail("( is not closed", frame.start, frame.start + 1)
                    return self._close(frame)
                if not self._is(")") or len(frames) == 1:
                    self._unexpected()
                self.place += 1
                inner = frames.pop()
                frame = frames[-1]
                if inner.operand is not None:
                    start, end = inner.start, self.tokens[self.place - 1].end
                    self._factor(frame, Operand(inner.operand.what, start, end))
                else:
                    self._add(frame, self._close(inner))
            if frame.operand is not None:
                self._settle(frame)
            if self.token.value == "OR":
                frame.terms.append([])
            self.place += 1

    def _factor(self, frame: _Frame, operand: Operand) -> None:
        """Reads a predicate that begins with `operand`, or takes the operand alone.

        An operand alone waits in the frame until the next token decides its role.
        """
        negated = frame.flipped
        node = self._predicate(operand, negated)
        if node is not None:
            self._add(frame, node)
        elif self._is(")") and len(frame.terms) == 1 and not frame.terms[0] and not frame.nots:
            # The text "(x)" may go on as "(x) = 1".
            frame.operand = operand
        else:
            if not (self._is("AND") or self._is("OR") or self._is(")") or self.token.kind == "end"):
                self._unexpected()
            self._add(frame, self._truth(operand, negated))

    def _settle(self, frame: _Frame) -> None:
        assert frame.operand is not None
        self._add(frame, self._truth(frame.operand, frame.flipped))
        frame.operand = None

    def _add(self, frame: _Frame, node: Node) -> None:
        frame.terms[-1].append(node)
        frame.nots = 0

    def _close(self, frame: _Frame) -> Node:
        if frame.operand is not None:
            self._settle(frame)
        inner, outer = (tree.any_of, tree.all_of) if frame.negated else (tree.all_of, tree.any_of)
        ranks = self.schema.ranks
        node = outer([inner(terms, ranks) for terms in frame.terms], ranks)
        conjunctions = tree.count(node)
        if conjunctions > CONJUNCTIONS_MAX:
            message = (
                f"ORs and INs multiply out to {_about(conjunctions)} conjunctions; "
                f"the maximum is {CONJUNCTIONS_MAX:,}"
            )
            self._fail(message, frame.start, self.tokens[self.place - 1].end)
        return node

    def _unexpected(self) -> NoReturn:
        token = self.token
        if token.kind == "op" and token.value == "(":
            before = self.tokens[self.place - 1]
            if before.kind in ("name", "word"):
                self._fail(
                    f"function calls are not supported: {before.value[:40]}",
                    before.start,
                    token.end,
                )
        if token.kind == "op" and token.value in _COMPARISONS:
            self._fail("a comparison cannot be compared again; use AND, OR, NOT")
        if token.kind == "op" and token.value in ("+", "-"):
            self._fail("arithmetic is not supported")
        if token.kind == "op" and token.value == ")":
            self._fail(") closes nothing")
        if token.kind == "word" and token.value not in (
            "LIKE",
            "IN",
            "BETWEEN",
            "IS",
            "RLIKE",
            "NOT",
            "REGEXP",
            "ESCAPE",
        ):
            self._fail(f"{token.value} is not supported")
        self._fail("AND, OR or the end of the filter expected")

    # Predicates.

    def _predicate(self, left: Operand, negated: bool) -> Node | None:
        """Reads the rest of a predicate after its first operand; None if there is no predicate."""
        token = self.token
        if token.kind == "op" and token.value in _COMPARISONS:
            self.place += 1
            right = self._operand()
            if token.value == "<=>":
                return self._same(left, right, negated)
            return self._compare(left, token.value, right, negated)
        if token.kind != "word":
            return None
        if self._take("IS"):
            return self._is_null(left, negated)
        inverted = self._take("NOT")
        negated ^= inverted
        if self._take("BETWEEN"):
            return self._between(left, negated)
        if self._take("IN"):
            return self._in(left, negated)
        if self._take("LIKE"):
            return self._like(left, negated)
        if self._take("RLIKE") or self._take("REGEXP"):
            return self._rlike(left, negated)
        if inverted:
            self._fail("BETWEEN, IN, LIKE or RLIKE expected after NOT")
        return None

    # _fail does not return.
    def _truth(self, operand: Operand, negated: bool) -> Node:  # noqa: RET503
        what = operand.what
        if isinstance(what, Literal):
            if what.kind == "NULL":
                return FALSE
            if isinstance(what.value, bool):
                return Const(what.value != negated)
        elif self.schema.types[what] is Type.BOOLEAN:
            return tree.membership(what, (not negated,), False)
        self._fail(
            f"a condition expected, and {self._describe(operand)} is not one",
            operand.start,
            operand.end,
        )

    def _compare(self, left: Operand, op: str, right: Operand, negated: bool) -> Node:
        """The predicate `left op right`.

        The literal goes to the right. Two attributes are put in the order of the schema.
        """
        if negated:
            op = _NEGATED[op]
        if isinstance(left.what, Literal) and not isinstance(right.what, Literal):
            left, right, op = right, left, fit.MIRRORED[op]
        try:
            if isinstance(right.what, Literal):
                if isinstance(left.what, Literal):
                    return fit.constants(left.what, op, right.what)
                return fit.compare(left.what, self.schema, op, right.what)
            assert not isinstance(left.what, Literal)
            return fit.pair(left.what, self.schema, op, right.what)
        except UnlikeError:
            self._unlike(left, right)
        except ValueError as error:
            self._fail(str(error), right.start, right.end)

    def _unlike(self, left: Operand, right: Operand) -> NoReturn:
        start, end = min(left.start, right.start), max(left.end, right.end)
        self._fail(
            f"{self._describe(left)} cannot be compared with {self._describe(right)}", start, end
        )

    def _same(self, left: Operand, right: Operand, negated: bool) -> Node:
        """The operator <=>, which is never NULL, in terms of = and IS NULL."""
        ranks = self.schema.ranks
        equal = self._compare(left, "=", right, negated)
        missing = [self._null(side, negated) for side in (left, right)]
        if not negated:
            return tree.any_of([equal, tree.all_of(missing, ranks)], ranks)
        either = [equal, self._null(left, False), self._null(right, False)]
        return tree.all_of([tree.any_of(either, ranks), tree.any_of(missing, ranks)], ranks)

    def _null(self, operand: Operand, negated: bool) -> Node:
        if isinstance(operand.what, Literal):
            return Const((operand.what.kind == "NULL") != negated)
        if self.schema.attributes[operand.what].required:
            return Const(negated)
        return Null(operand.what, negated)

    def _is_null(self, left: Operand, negated: bool) -> Node:
        negated ^= self._take("NOT")
        if not self._take("NULL"):
            self._fail("NULL expected: of the IS forms only IS [NOT] NULL is supported")
        return self._null(left, negated)

    def _between(self, left: Operand, negated: bool) -> Node:
        low = self._operand()
        self._expect("AND", "between the ends of BETWEEN")
        high = self._operand()
        ends = [self._compare(left, ">=", low, negated), self._compare(left, "<=", high, negated)]
        return (tree.any_of if negated else tree.all_of)(ends, self.schema.ranks)

    def _in(self, left: Operand, negated: bool) -> Node:
        start = self.token.start
        self._expect("(", "after IN")
        if self._is(")"):
            self._fail("IN needs at least one value")
        members = [self._operand()]
        while self._take(","):
            members.append(self._operand())
        if not self._is(")"):
            self._fail(", or ) expected in the list of IN")
        self.place += 1
        if isinstance(left.what, Literal):
            self._fail("an attribute expected before IN", left.start, left.end)
        literals: list[Literal] = []
        for member in members:
            if not isinstance(member.what, Literal):
                self._fail("IN takes literals only", member.start, member.end)
            if not fit.alike(self.schema.types[left.what], member.what):
                self._unlike(left, member)
            literals.append(member.what)
        try:
            node = fit.member(left.what, self.schema, literals, negated)
        except ValueError as error:
            self._fail(str(error), start, self.tokens[self.place - 1].end)
        if tree.count(node) > CONJUNCTIONS_MAX:
            message = (
                f"IN takes at most {CONJUNCTIONS_MAX:,} values; this one has {len(literals):,}"
            )
            self._fail(message, start, self.tokens[self.place - 1].end)
        return node

    def _text(self, left: Operand, word: str) -> tuple[int, str | None, Token]:
        """Reads the two sides of LIKE and RLIKE.

        They are a STRING attribute and a string literal. The text is None for NULL.
        """
        if isinstance(left.what, Literal):
            self._fail(f"an attribute expected before {word}", left.start, left.end)
        if self.schema.types[left.what] is not Type.STRING:
            self._fail(
                f"{word} is for STRING, and {self._describe(left)} is not", left.start, left.end
            )
        right = self._operand()
        if not isinstance(right.what, Literal) or right.what.kind not in ("STRING", "NULL"):
            self._fail(f"a string literal expected after {word}", right.start, right.end)
        value = right.what.value
        return (
            left.what,
            value if isinstance(value, str) else None,
            Token("string", "", right.start, right.end),
        )

    def _like(self, left: Operand, negated: bool) -> Node:
        attribute, text, place = self._text(left, "LIKE")
        escape = "\\"
        if self._take("ESCAPE"):
            token = self.token
            if (
                token.kind != "string"
                or len(token.value) != 1
                or ord(token.value) > 0xFFFF
                or not encodable(token.value)
            ):
                # One character of UTF-16, as Spark counts.
                self._fail("ESCAPE takes a string of one character")
            escape = token.value
            self.place += 1
        if text is None:
            return FALSE
        try:
            node = pattern.like_node(
                attribute, text, escape, negated, self.schema.attributes[attribute].required
            )
            if isinstance(node, tree.Like):
                # A pattern that is too large is an error now, and not at the first event.
                pattern.like_source(node.pattern)
            return node
        except ValueError as error:
            self._fail(str(error), place.start, place.end)

    def _rlike(self, left: Operand, negated: bool) -> Node:
        attribute, text, place = self._text(left, "RLIKE")
        if text is None:
            return FALSE
        try:
            pattern.rlike(text)
        except ValueError as error:
            self._fail(f"RLIKE pattern: {error}", place.start, place.end)
        return tree.Rlike(attribute, text, negated)

    # Operands.

    def _operand(self) -> Operand:
        opened: list[int] = []
        while self._is("("):
            if len(opened) == DEPTH_MAX:
                self._fail(f"parentheses are at most {DEPTH_MAX} deep")
            opened.append(self.token.start)
            self.place += 1
        found = self._atom()
        for start in reversed(opened):
            if not self._is(")"):
                self._fail("only an attribute or a literal can be compared: ) expected")
            found = Operand(found.what, start, self.token.end)
            self.place += 1
        return found

    def _atom(self) -> Operand:  # noqa: RET503
        token = self.token
        following = self.tokens[min(self.place + 1, len(self.tokens) - 1)]
        if token.kind == "name":
            if (
                following.kind == "string"
                and token.value.upper() in _TYPED
                and self.text[token.start] != "`"
            ):
                self.place += 2
                return self._literal(
                    lambda: fit.typed(token.value.upper(), following.value),
                    token.start,
                    following.end,
                )
            return self._attribute()
        if token.kind == "string":
            return self._strings()
        sign = token.value if token.kind == "op" and token.value in ("+", "-") else ""
        number = following if sign else token
        if number.kind == "number":
            self.place += 2 if sign else 1
            return self._literal(
                lambda: fit.number(number.value, sign == "-"), token.start, number.end
            )
        if token.kind == "word" and token.value in ("TRUE", "FALSE", "NULL"):
            self.place += 1
            value = None if token.value == "NULL" else token.value == "TRUE"
            return Operand(
                Literal("NULL" if value is None else "BOOLEAN", value), token.start, token.end
            )
        if sign:
            self._fail("arithmetic is not supported; a sign stands before a number only")
        if token.kind == "word" and token.value in (
            "CASE",
            "CAST",
            "EXISTS",
            "INTERVAL",
            "SELECT",
            "DISTINCT",
            "STRUCT",
        ):
            self._fail(f"{token.value} is not supported")
        self._fail("an attribute or a literal expected")

    def _strings(self) -> Operand:
        """Strings that follow each other are one string."""
        first = self.token
        values: list[str] = []
        while self.token.kind == "string":
            values.append(self.token.value)
            self.place += 1
        return self._literal(
            lambda: fit.string("".join(values)), first.start, self.tokens[self.place - 1].end
        )

    def _literal(self, make: object, start: int, end: int) -> Operand:
        assert callable(make)
        try:
            return Operand(make(), start, end)
        except ValueError as error:
            self._fail(str(error), start, end)

    def _attribute(self) -> Operand:
        first = self.token
        parts, end = [first.value], first.end
        self.place += 1
        while self._is(".") and self.tokens[self.place + 1].kind in ("name", "word"):
            part = self.tokens[self.place + 1]
            parts.append(part.value if part.kind == "name" else self.text[part.start : part.end])
            end = part.end
            self.place += 2
        if self._is("("):
            self._fail(
                f"function calls are not supported: {first.value[:40]}", first.start, self.token.end
            )
        name = ".".join(parts)
        index = self.schema.find(name)
        if index is not None and any("." in part for part in parts):
            written = quote(self.schema.attributes[index].path)
            self._fail(
                f"in backquotes the dot is part of a name; write {written}", first.start, end
            )
        if index is None:
            close = self.schema.nearest(name)
            hint = f" (did you mean {close!r}?)" if close else ""
            self._fail(f"unknown attribute {name[:80]!r}{hint}", first.start, end)
        return Operand(index, first.start, end)

    def _describe(self, operand: Operand) -> str:
        if isinstance(operand.what, Literal):
            shown = printable(self.text[operand.start : operand.end])
            return f"{shown if len(shown) <= 40 else shown[:39] + '…'} ({operand.what.kind})"
        attribute = self.schema.attributes[operand.what]
        return f"{attribute.name} ({attribute.type})"


def _about(number: int) -> str:
    return f"{number:,}" if number < 10**9 else "more than a thousand million"
