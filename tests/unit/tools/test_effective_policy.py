"""The effective policy of a tool: who wins, and that it is said who did."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.tool_definitions import Approval, Effect, ServerTool, ToolPolicy, ToolSpec
from treadle.tools import Tool, ToolRegistry, tool
from treadle.tools.effective_policy import Policies
from treadle.tools.function_tools import foreign_tool
from treadle.tools.policy_rules import EffectDefaults, PolicyRule, fits, is_tighter

FIELDS = ToolPolicy.__struct_fields__
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "effect": st.sampled_from(get_args(Effect)),
    "approval": st.sampled_from(get_args(Approval)),
    "timeout_s": st.sampled_from([1.0, 10.0, 60.0]),
    "retries": st.integers(0, 3),
    "output_bytes_max": st.sampled_from([256, 65_536]),
    "rate_per_min": st.sampled_from([0, 1, 60]),
    "parallel": st.booleans(),
    "resources": st.sampled_from([(), ("*",), ("file:{path}",)]),
    "exec": st.booleans(),
    "egress": st.booleans(),
    "untrusted": st.booleans(),
}
POLICIES = st.fixed_dictionaries(VALUES).map(lambda fields: ToolPolicy(**fields))


@tool(effect="read", timeout_s=10.0)
def look(path: str) -> str:
    """Look at something."""
    return path


@tool
def plain() -> str:
    """Say nothing of itself."""
    return ""


def made(policy: ToolPolicy, *, name: str = "act", source: str = "mcp:files") -> Tool:
    """Return a tool that somebody else declared."""

    async def act(arguments: dict[str, Any], context: object) -> str:
        return "done"

    return foreign_tool(ServerTool(spec=ToolSpec(name=name), policy=policy, source=source), act)


def rule(*match: str, **fields: Any) -> PolicyRule:
    """Return a rule of the user's."""
    return PolicyRule(match=match, by=fields.pop("by", "[[tools.rule]] #1"), **fields)


def test_what_a_tool_says_of_itself_is_declared_also_at_its_default() -> None:
    """A timeout that equals the default was still said, so no default replaces it."""
    found = Policies(timeout_s=3.0).apply(look)
    assert (found.policy.timeout_s, found.why["timeout_s"], found.why["effect"]) == (10.0, "declared", "declared")
    assert found.why["retries"] == "default"
    silent = Policies(timeout_s=3.0).apply(plain)
    assert (silent.policy.timeout_s, silent.why["timeout_s"]) == (3.0, "limits.tool_timeout_s")


def test_defaults_of_an_effect_fill_what_nobody_set() -> None:
    """They stand above the limits of all tools, below a declaration, and follow the effect that a rule gave."""
    by_effect: dict[Effect, EffectDefaults] = {
        "read": EffectDefaults(timeout_s=2.0, retries=2),
        "destructive": EffectDefaults(approval="always", timeout_s=1.0),
    }
    policies = Policies([rule("plain", effect="destructive")], by_effect=by_effect, timeout_s=3.0)
    read, wild = policies.apply(look), policies.apply(plain)
    assert (read.policy.timeout_s, read.policy.retries, read.why["retries"]) == (10.0, 2, "[policy.read]")
    assert (wild.policy.approval, wild.policy.timeout_s) == ("always", 1.0)
    assert (wild.why["effect"], wild.why["approval"]) == ("[[tools.rule]] #1", "[policy.destructive]")


def test_rules_win_over_declarations_and_later_ones_over_earlier() -> None:
    """Each field for itself; what a rule does not name stays."""
    policies = Policies(
        [
            rule("l*", timeout_s=1.0, retries=1, by="one"),
            rule("python", timeout_s=2.0, by="two"),
            rule("other", timeout_s=9.0, by="three"),
        ]
    )
    found = policies.apply(look)
    assert (found.policy.timeout_s, found.policy.retries, found.policy.effect) == (2.0, 1, "read")
    assert (found.why["timeout_s"], found.why["retries"], found.why["effect"]) == ("two", "one", "declared")


def test_the_users_rule_may_loosen() -> None:
    """It is the user's machine: a stranger's tool can be made a read that nobody is asked about."""
    found = Policies([rule("mcp:files", effect="read", approval="never", egress=False)]).apply(
        made(ToolPolicy(effect="destructive", approval="always", egress=True))
    )
    assert (found.policy.effect, found.policy.approval, found.policy.egress) == ("read", "never", False)


@given(policy=POLICIES, changes=st.fixed_dictionaries({}, optional=VALUES))
def test_a_repositorys_rule_never_loosens_anything(policy: ToolPolicy, changes: dict[str, Any]) -> None:
    """Whatever it says, every field ends where it was or tighter, and a refusal is told with the field."""
    told: list[str] = []
    before = made(policy)
    after = Policies([rule("*", is_repository=True, by="repo", **changes)], told=told.append).apply(before)
    for field in FIELDS:
        value, standing = getattr(after.policy, field), getattr(policy, field)
        assert is_tighter(field, value, standing)
        if value != standing:
            assert (after.why[field], value) == ("repo", changes[field])
        elif field in changes and changes[field] != standing:
            assert "repo may not loosen it" in after.why[field]
            assert any(f"{field} of act" in words for words in told)


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_a_tighter_direction(field: str) -> None:
    """No field is forgotten: of two values that differ in strictness at most one is the tighter."""
    pairs = {
        "effect": ("destructive", "read"),
        "approval": ("always", "never"),
        "timeout_s": (1.0, 2.0),
        "retries": (0, 1),
        "output_bytes_max": (256, 512),
        "rate_per_min": (1, 0),
        "parallel": (False, True),
        "resources": (("*",), ()),
    }
    tight, loose = pairs.get(field, (True, False))
    assert is_tighter(field, tight, loose)
    assert not is_tighter(field, loose, tight)


def test_a_rule_can_take_tools_away_and_only_the_user_gives_them_back() -> None:
    """A tool that is off is as if it were not there, and the reason is kept."""
    off = rule("plain", enabled=False, by="off")
    registry = ToolRegistry([plain, look], policies=Policies([off]))
    assert registry.get("plain") is None
    assert [each.name for each in registry.tools()] == ["look"]
    assert {each.name: (each.is_on, each.why.get("enabled")) for each in registry.everything()} == {
        "look": (True, None),
        "plain": (False, "off"),
    }
    back = ToolRegistry([plain], policies=Policies([off, rule("plain", enabled=True, by="on")]))
    assert back.get("plain") is not None
    told: list[str] = []
    kept = [off, rule("plain", enabled=True, is_repository=True, by="repo")]
    assert ToolRegistry([plain], policies=Policies(kept, told=told.append)).get("plain") is None
    assert told == ["repo: enabled of plain is left as it is: a repository's own file may only tighten"]


def test_every_way_into_the_registry_goes_through_the_policies() -> None:
    """Added, swapped in by a reload, or listed by a server later: all are under the same rules."""
    registry = ToolRegistry(policies=Policies([rule("*", approval="always")]))
    registry.add(plain)
    registry.swap(["plain"], [plain, look])
    registry.add(made(ToolPolicy()))
    assert {each.policy.approval for each in registry.tools()} == {"always"}


def test_a_tool_that_nothing_concerns_is_left_as_it_is() -> None:
    """The same object, so that nothing is made anew for nothing."""
    assert Policies().apply(plain) is plain
    assert Policies([rule("other", retries=3)]).apply(plain) is plain
    assert msgspec.structs.asdict(plain.policy) == msgspec.structs.asdict(ToolPolicy())


@pytest.mark.parametrize(
    ("patterns", "is_fitting"),
    [
        (("act",), True),
        (("a*",), True),
        (("mcp:files",), True),
        (("mcp:*",), True),
        (("*",), True),
        (("x", "act"), True),
        (("ACT",), False),
        (("files",), False),
        ((), False),
    ],
)
def test_patterns_are_of_names_and_sources(patterns: tuple[str, ...], is_fitting: bool) -> None:
    """One that fits is enough; no pattern fits nothing."""
    assert fits(made(ToolPolicy()).declared, patterns) is is_fitting
