"""The communication style of the model: a part of its instructions, and news when it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.model.catalog import traits_of

if TYPE_CHECKING:
    from treadle.engine.settings import RunSettings
    from treadle.protocol.model import Personality

STYLES: Final[dict[Personality, str]] = {
    "friendly": """\
- Be warm and encouraging. Work as a supportive teammate who cares about the person as much as \
about the code.
- Say what you are about to do and check in at turning points, so that the user can follow and \
join in. Use "we" where you work together.
- Explain concepts patiently and without jargon; assume nothing about what the user knows.
- Point out problems kindly, together with a way forward. Acknowledge what is good when it is \
true.""",
    "pragmatic": """\
- Be direct and concise. Lead with what the user needs for the next decision; leave the rest out.
- State assumptions, trade-offs and risks explicitly, with their reasons.
- Disagree openly when the evidence does, with facts and never with condescension.
- Use no flattery, no cheerleading and no filler.""",
    "none": "",
}


def style_of(settings: RunSettings) -> Personality:
    """Return the style that applies: none if instructions of a client replace the server's own."""
    can_apply = (
        settings.is_enabled("personality")
        and settings.base_instructions is None
        and traits_of(settings.model).supports_personality
    )
    return (settings.personality or "none") if can_apply else "none"


def with_personality(instructions: str, settings: RunSettings) -> str:
    """Return the instructions with the style; without one they stay as they are."""
    style = STYLES[style_of(settings)]
    return f"{instructions}\nYour personality:\n{style}\n" if style else instructions


def personality_switch(style: Personality) -> str:
    """Describe a change of the style during a conversation."""
    text = STYLES[style] or "No particular style; follow your other instructions."
    return (
        "<personality_spec>\nThe user chose another communication style. It applies from now on:\n"
        f"{text}\n</personality_spec>"
    )
