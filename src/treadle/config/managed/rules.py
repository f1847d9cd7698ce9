"""Rules for commands that an administrator sets in `requirements.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from treadle.config.file import ConfigError
from treadle.engine.commands.rule_file import Decision, PrefixRule, RuleFile
from treadle.protocol.base import JsonValue
from treadle.protocol.explain import explain

KEY: Final = "rules"
MAX_RULES: Final = 1000


class _Word(msgspec.Struct, forbid_unknown_fields=True):
    token: str | None = None
    any_of: list[str] | None = None

    def alternatives(self) -> tuple[str, ...]:
        words = [self.token] if self.token is not None else list(self.any_of or ())
        if not all(words) or not words or (self.token is not None and self.any_of is not None):
            message = f"`{KEY}.prefix_rules.pattern` needs `token` or `any_of` for each word"
            raise ConfigError(message, key=KEY)
        return tuple(words)


class _Rule(msgspec.Struct):
    pattern: list[_Word]
    decision: Decision
    justification: str | None = None


class _Rules(msgspec.Struct):
    prefix_rules: list[_Rule] = []


class _Document(msgspec.Struct):
    rules: _Rules


def read_managed_rules(table: Mapping[str, JsonValue], source: str) -> RuleFile:
    """Return the rules in the content of `requirements.toml`.

    Raises:
        ConfigError: a rule is invalid.
    """
    if KEY not in table:
        return RuleFile()
    try:
        rules = msgspec.convert({KEY: table[KEY]}, _Document).rules.prefix_rules
    except msgspec.ValidationError as error:
        fault = explain(error, _Document)
        raise ConfigError(f"{fault.message} in requirements.toml", key=fault.path) from error
    if len(rules) > MAX_RULES:
        message = f"`{KEY}.prefix_rules` has {len(rules)} rules, expected at most {MAX_RULES}"
        raise ConfigError(message, key=KEY)
    if not all(rule.pattern for rule in rules):
        raise ConfigError(f"`{KEY}.prefix_rules.pattern` must not be empty", key=KEY)
    return RuleFile(
        prefixes=[
            PrefixRule(
                tuple(word.alternatives() for word in rule.pattern),
                rule.decision,
                rule.justification,
                source,
            )
            for rule in rules
        ]
    )
